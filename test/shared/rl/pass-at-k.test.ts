import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { passAtK, passLevels } from '../../../shared/rl/pass-at-k.js';
import { assertClose } from './close.js';

describe('pass@k', () => {
  it('pass@k is the share of right answers for k = 1', () => {
    assertClose([passAtK(1, 3, 8), passAtK(1, 0, 4), passAtK(1, 4, 4)], [3 / 8, 0, 1]);
  });

  it('pass@k counts the choices of k answers that are not all wrong', () => {
    // 2 of 4 right: of 6 pairs, one is all wrong. 1 of 5 right: of 10 triples, 4 are all wrong.
    assertClose([passAtK(2, 2, 4), passAtK(3, 1, 5)], [5 / 6, 6 / 10]);
  });

  it('pass@k is 1 when fewer than k answers are wrong', () => {
    assert.equal(passAtK(4, 1, 4), 1);
  });

  it('pass@k agrees with drawing every choice of k answers', () => {
    const case_ = fc.integer({ min: 1, max: 9 }).chain((answers) =>
      fc.record({
        k: fc.integer({ min: 1, max: answers }),
        right: fc.array(fc.boolean(), { minLength: answers, maxLength: answers }),
      }),
    );
    fc.assert(
      fc.property(case_, ({ k, right }) => {
        const choices = subsets(right, k);
        const passed = choices.filter((choice) => choice.includes(true)).length;
        const correct = right.filter(Boolean).length;
        assertClose([passAtK(k, correct, right.length)], [passed / choices.length]);
      }),
    );
  });

  it('pass@k refuses k above the number of answers, and k of 0', () => {
    assert.throws(() => passAtK(5, 1, 4), /passAtK: k is 5, of 4 answers/);
    assert.throws(() => passAtK(0, 1, 4), /k is 0/);
    assert.throws(() => passAtK(1, 5, 4), /5 of 4 answers are correct/);
  });

  it('pass@k is reported for powers of two and for all the answers', () => {
    assert.deepEqual([1, 2, 4, 6, 16].map(passLevels), [
      [1],
      [1, 2],
      [1, 2, 4],
      [1, 2, 4, 6],
      [1, 2, 4, 8, 16],
    ]);
  });
});

function subsets<T>(items: readonly T[], size: number): T[][] {
  if (size === 0) return [[]];
  return items.flatMap((item, i) =>
    subsets(items.slice(i + 1), size - 1).map((rest) => [item, ...rest]),
  );
}
