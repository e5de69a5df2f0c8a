import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRandom } from '../../../../shared/base/random.js';
import { UserError } from '../../../../shared/base/errors.js';
import {
  areHeldOut,
  drawProblem,
  generateProblems,
  type SolvedProblem,
} from '../../../../shared/tasks/countdown/generator.js';
import { problemKey } from '../../../../shared/tasks/countdown/problem.js';
import { scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import type { GeneratorSpec } from '../../../../shared/tasks/countdown/spec.js';
import { forms, zeroOrOne } from '../../../support/countdown-task.js';

const spec: GeneratorSpec = {
  kind: 'generator',
  seed: 7,
  numbers: [3, 4],
  maxNumber: 50,
  maxTarget: 100,
  trainSize: 1_900,
  testSize: 100,
};
const generated = generateProblems(spec);
const solved = [...generated.test, ...generated.train];

describe('the generated problems', () => {
  it('the generated problems have the requested number and are within the requested ranges', () => {
    assert.equal(generated.test.length, 100);
    assert.equal(generated.train.length, 1_900);
    for (const { problem } of solved) {
      assert(spec.numbers.includes(problem.numbers.length));
      assert(problem.numbers.every((number) => number >= 1 && number <= spec.maxNumber));
      assert(problem.target >= 1 && problem.target <= spec.maxTarget);
    }
  });

  it('the generated problems keep to ranges that do not begin at 1', () => {
    const ranges = { minNumber: 10, maxNumber: 99, minTarget: 100, maxTarget: 999 };
    for (const { problem } of generateProblems({ ...spec, ...ranges, numbers: [5, 6] }).train) {
      assert(problem.numbers.every((number) => number >= 10 && number <= 99));
      assert(problem.target >= 100 && problem.target <= 999);
    }
  });

  it('the largest targets that the numbers reach are drawn by every operator that reaches them', () => {
    const targetsOf = (operator: string, minTarget: number): number[] => {
      const random = createRandom(operator);
      const range = { numbers: [2], maxNumber: 4, minTarget, maxTarget: 16 };
      const drawn = Array.from({ length: 2_000 }, () => drawProblem(random, range));
      const solved = drawn.filter((one) => one !== undefined);
      const ofOperator = solved.filter(({ witness }) => witness.includes(operator));
      return [...new Set(ofOperator.map(({ problem }) => problem.target))].sort((a, b) => a - b);
    };
    assert.deepEqual(targetsOf('+', 8), [8]);
    assert.deepEqual(targetsOf('-', 3), [3]);
    assert.deepEqual(targetsOf('*', 12), [12, 16]);
    assert.deepEqual(targetsOf('*', 16), [16]);
    assert.deepEqual(targetsOf('/', 4), [4]);
    assert.deepEqual(targetsOf('-', 4), []);
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
    assert.deepEqual(generateProblems(spec), generated);
    assert.notDeepEqual(generateProblems({ ...spec, seed: 8 }), generated);
  });

  it('a share of the training problems may be of another kind, none of which is held out', () => {
    const rehearsal = { share: 0.25, numbers: [3], maxNumber: 20, maxTarget: 99 };
    const mixed = { ...spec, numbers: [4], minTarget: 101, maxTarget: 200, rehearsal };
    const { test, train } = generateProblems(mixed);
    const isRehearsed = ({ problem }: SolvedProblem) => problem.target <= 99;
    assert.equal(test.filter(isRehearsed).length, 0);
    const rehearsed = train.filter(isRehearsed);
    assert(Math.abs(rehearsed.length / train.length - 0.25) < 0.05, String(rehearsed.length));
    for (const { problem } of rehearsed) assert.equal(problem.numbers.length, 3);
    for (const solved of train) assert.equal(solved.problem.isRehearsed, isRehearsed(solved));
    assert(generated.train.every(({ problem }) => problem.isRehearsed === undefined));
    const more = generateProblems({ ...mixed, trainSize: 2_900, testSize: 200 });
    assert.deepEqual(more.test.slice(0, 100), test);
    assert.deepEqual(more.train.slice(0, 1_900), train);
    assert.equal(train.filter(({ problem }) => areHeldOut(problem.numbers)).length, 0);
  });

  it('a larger dataset begins with the same problems, so that held-out problems stay held out', () => {
    const more = generateProblems({ ...spec, trainSize: 2_900, testSize: 200 });
    assert.deepEqual(more.test.slice(0, 100), generated.test);
    assert.deepEqual(more.train.slice(0, 1_900), generated.train);
  });

  it('a held-out problem has numbers that no problem to train on has, whatever its seed, ranges and target', () => {
    const other = generateProblems({ ...spec, seed: 8, minTarget: 101, maxTarget: 400 });
    const combinations = (split: readonly SolvedProblem[]) =>
      new Set(split.map(({ problem }) => problem.numbers.toSorted((a, b) => a - b).join()));
    const heldOut = combinations([...generated.test, ...other.test]);
    const trained = combinations([...generated.train, ...other.train]);
    assert(heldOut.size > 150);
    for (const numbers of heldOut) assert(!trained.has(numbers), numbers);
  });

  it('the held-out combinations are always the same, since the embedded model was pre-trained without them', () => {
    const found = Array.from({ length: 57 }, (_, i) => i + 3).filter((n) => areHeldOut([n, 1, 2]));
    assert.deepEqual(found, [17, 19, 23, 25, 30, 31, 37, 40, 47, 55]); // by Python's hashlib
  });

  it('one in eight combinations of numbers is held out', () => {
    let count = 0;
    for (let a = 1; a <= 30; a++) {
      for (let b = a; b <= 30; b++) {
        for (let c = b; c <= 30; c++) count += areHeldOut([b, c, a]) ? 1 : 0;
      }
    }
    const expected = 4_960 / 8; // 3 of 30 with repetition
    assert(Math.abs(count - expected) < 5 * Math.sqrt(expected), String(count));
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
          /1900 different problems to train on and 100 held out, but after 1\d and \d the generator.*from 1 to 3, .*wider/s,
        );
        return true;
      },
    );
  });
});
