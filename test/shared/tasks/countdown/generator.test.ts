import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UserError } from '../../../../shared/base/errors.js';
import { generateProblems } from '../../../../shared/tasks/countdown/generator.js';
import { problemKey } from '../../../../shared/tasks/countdown/problem.js';
import { scoreAnswer, zeroOrOne } from '../../../../shared/tasks/countdown/score.js';
import type { GeneratorSpec } from '../../../../shared/tasks/countdown/task.js';
import { forms } from '../../../support/countdown-task.js';

const spec: GeneratorSpec = {
  kind: 'generator',
  seed: 7,
  numbers: [3, 4],
  maxNumber: 50,
  maxTarget: 100,
  trainSize: 1_900,
  testSize: 100,
};
const solved = generateProblems(spec);

describe('the generated problems', () => {
  it('the generated problems have the requested number and are within the requested ranges', () => {
    assert.equal(solved.length, 2_000);
    for (const { problem } of solved) {
      assert(spec.numbers.includes(problem.numbers.length));
      assert(problem.numbers.every((number) => number >= 1 && number <= spec.maxNumber));
      assert(problem.target >= 1 && problem.target <= spec.maxTarget);
    }
  });

  it('the generated problems keep to ranges that do not begin at 1', () => {
    const ranges = { minNumber: 10, maxNumber: 99, minTarget: 100, maxTarget: 999 };
    for (const { problem } of generateProblems({ ...spec, ...ranges, numbers: [5, 6] })) {
      assert(problem.numbers.every((number) => number >= 10 && number <= 99));
      assert(problem.target >= 100 && problem.target <= 999);
    }
  });

  it('the generated problems are all solved by their witness, under every style', () => {
    for (const { problem, witness } of solved) {
      assert.equal(scoreAnswer(forms.compact, problem, witness, zeroOrOne).reward, 1, witness);
      const block = `<answer>${witness}</answer>`;
      assert.equal(scoreAnswer(forms.fewshot, problem, block, zeroOrOne).reward, 1, witness);
    }
  });

  it('the generated problems are all different questions, whatever the order of the numbers', () => {
    assert.equal(new Set(solved.map(({ problem }) => problemKey(problem))).size, solved.length);
  });

  it('the generated problems have ids that state the question', () => {
    const { problem } = solved[0]!;
    assert.equal(problem.id, `${problem.numbers.join(',')}=${problem.target}`);
  });

  it('the generated problems are the same for the same seed and differ for another', () => {
    assert.deepEqual(generateProblems(spec), solved);
    assert.notDeepEqual(generateProblems({ ...spec, seed: 8 }), solved);
  });

  it('a larger dataset begins with the same problems, so that held-out problems stay held out', () => {
    const more = generateProblems({ ...spec, trainSize: 2_900 });
    assert.deepEqual(more.slice(0, solved.length), solved);
  });

  it('the generated problems vary in form: every operator, with and without parentheses, numbers in any order', () => {
    const share = (pattern: RegExp) =>
      solved.filter(({ witness }) => pattern.test(witness)).length / solved.length;
    for (const operator of [/\+/, /-/, /\*/, /\//]) assert(share(operator) > 0.2, String(operator));
    assert(share(/\(/) > 0.1 && share(/\(/) < 0.9);
    const inOrder = solved.filter(
      ({ problem, witness }) => witness.match(/\d+/g)!.join() === problem.numbers.join(),
    );
    assert(inOrder.length < solved.length / 4);
  });

  it('the generated problems are refused with the remedy if the ranges hold too few of them', () => {
    const tiny: GeneratorSpec = { ...spec, numbers: [2], maxNumber: 3, maxTarget: 9 };
    assert.throws(
      () => generateProblems(tiny),
      (error: unknown) => {
        assert(error instanceof UserError);
        assert.match(
          error.message,
          /2000 different problems.*after 1\d the generator.*from 1 to 3, .*wider/s,
        );
        return true;
      },
    );
  });
});
