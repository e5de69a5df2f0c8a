import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { generateProblems } from '../../../../shared/tasks/countdown/generator.js';
import { scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import { nearest, solve, type Question } from '../../../../shared/tasks/countdown/solver.js';
import { absolute, integer, subtract, type Rational } from '../../../../shared/tasks/rational.js';
import { problemOf } from '../../../../shared/tasks/countdown/problem.js';
import { allWays, countAllWays } from '../../../support/all-ways.js';
import { forms, zeroOrOne } from '../../../support/countdown-task.js';

const textsOf = (numbers: number[], target: number, numbersToUse?: 'all' | 'some') =>
  solve({ numbers, target }, numbersToUse).map(({ text }) => text);
const rewardOf = ({ numbers, target }: Question, text: string, numbersToUse: 'all' | 'some') =>
  scoreAnswer(forms.compact, problemOf(numbers, target), text, { ...zeroOrOne, numbersToUse });

/** Small numbers have many solutions, fractions and zeros on the way. */
const distinctNumbers = fc.uniqueArray(fc.integer({ min: 1, max: 12 }), {
  minLength: 2,
  maxLength: 4,
});
const anyNumbers = fc.array(fc.integer({ min: 0, max: 12 }), { minLength: 1, maxLength: 4 });
const target = fc.integer({ min: -30, max: 60 });

describe('the solver', () => {
  it('the solver finds solutions that need fractions', () => {
    assert.deepEqual(textsOf([3, 3, 8, 8], 24), ['8/(3-8/3)']);
  });

  it('the solver shows a solution once, whatever its order and grouping', () => {
    assert.deepEqual(textsOf([1, 2, 3], 6), ['3*2*1', '3*2/1', '3+2+1']);
    assert.deepEqual(textsOf([5, 5, 5], 5), ['5*5/5', '5+5-5']);
  });

  it('the solver puts few numbers before many, whole parts before fractions, and short before long', () => {
    assert.deepEqual(textsOf([2, 4, 8], 8, 'some').slice(0, 3), ['8', '4*2', '4+8/2']);
    assert.deepEqual(textsOf([1, 3, 7, 8], 24), ['8*(7-3-1)', '3/(1-7/8)']);
    assert.deepEqual(textsOf([1, 2, 3, 4], 24).slice(1, 3), ['4*3*2/1', '(3+2+1)*4']);
  });

  it('the solver recognizes that there is no solution', () => {
    assert.deepEqual(textsOf([3, 7, 21], 64), []);
    assert.deepEqual(textsOf([1, 1, 1, 1, 1, 1], 100), []);
  });

  it('the solver solves six numbers', () => {
    const found = textsOf([25, 50, 75, 100, 3, 6], 952);
    assert(found.includes('((100+6)*75*3-50)/25'), found.join(' '));
  });

  it('the solver finds only solutions that earn the reward 1, also below zero and with numbers left out', () => {
    fc.assert(
      fc.property(anyNumbers, target, fc.constantFrom('all', 'some'), (numbers, to, use) => {
        for (const { text, value, numbersUsed } of solve({ numbers, target: to }, use)) {
          const score = rewardOf({ numbers, target: to }, text, use);
          assert.equal(score.reward, 1, `${text}: ${score.reason}`);
          assert.equal(value, String(to));
          assert.equal(text.match(/\d+/g)!.length, numbersUsed);
        }
      }),
    );
  });

  it('the solver finds as many solutions as an exhaustive search', () => {
    fc.assert(
      fc.property(distinctNumbers, fc.integer({ min: 1, max: 30 }), (numbers, to) => {
        assert.equal(solve({ numbers, target: to }).length, countAllWays(numbers, to));
      }),
      { numRuns: 60 },
    );
  });

  it('the solver solves every problem of the generator', () => {
    for (const [count, size] of [
      [2, 30],
      [3, 60],
      [4, 30],
      [5, 4],
      [6, 1],
    ] as const) {
      const spec = { kind: 'generator', seed: count, maxNumber: 99, maxTarget: 999 } as const;
      const sizes = { numbers: [count], trainSize: size, testSize: 1 };
      for (const { problem } of generateProblems({ ...spec, ...sizes }).train) {
        assert(solve(problem).length > 0, problem.id);
      }
    }
  });

  it('the solver finds the same solutions whatever the order of the numbers', () => {
    assert.deepEqual(
      solve({ numbers: [21, 3, 7], target: 84 }),
      solve({ numbers: [3, 7, 21], target: 84 }),
    );
  });

  it('the solver refuses problems that it cannot solve in bounded time', () => {
    assert.throws(
      () => solve({ numbers: [1, 2, 3, 4, 5, 6, 7], target: 1 }),
      /there are 7 numbers/,
    );
    assert.throws(() => solve({ numbers: [1, 0.5], target: 1 }), /0\.5 is not a whole number/);
    assert.throws(() => solve({ numbers: [], target: 1 }), RangeError);
    assert.throws(() => solve({ numbers: [1], target: 0.5 }), RangeError);
  });
});

describe('the nearest result to a target', () => {
  it('the nearest result is a solution if there is one', () => {
    fc.assert(
      fc.property(anyNumbers, target, fc.constantFrom('all', 'some'), (numbers, to, use) => {
        const [best] = solve({ numbers, target: to }, use);
        const near = nearest({ numbers, target: to }, use);
        if (best === undefined) assert.notEqual(near.value, String(to));
        else assert.deepEqual(near, best);
      }),
    );
  });

  it('the nearest result is at least as near as any expression that uses the same numbers', () => {
    assert.deepEqual(nearest({ numbers: [3, 7, 21], target: 64 }), {
      text: '21*3+7',
      value: '70',
      numbersUsed: 3,
    });
    assert.equal(nearest({ numbers: [2, 3], target: 4 }).value, '5');
    assert.equal(nearest({ numbers: [3, 7], target: 2 }, 'some').text, '7/3');
  });

  it('the nearest result is as near as the best of an exhaustive search', () => {
    const large = fc.integer({ min: 999_999_990, max: 999_999_999 }); // where doubles see no difference
    const numbers = fc.array(fc.oneof(fc.integer({ min: 1, max: 12 }), large), {
      minLength: 2,
      maxLength: 4,
    });
    fc.assert(
      fc.property(numbers, fc.integer({ min: -9, max: 60 }), (numbers, to) => {
        const missedBy = ({ numerator, denominator }: Rational) =>
          absolute(subtract({ numerator, denominator }, integer(to)));
        const least = allWays(numbers)
          .map(missedBy)
          .reduce((a, b) => (subtract(a, b).numerator <= 0n ? a : b));
        const [numerator, denominator = '1'] = nearest({ numbers, target: to }).value.split('/');
        const found = { numerator: BigInt(numerator!), denominator: BigInt(denominator) };
        assert(subtract(missedBy(found), least).numerator <= 0n, `${numbers.join(' ')} ${to}`);
      }),
      { numRuns: 40 },
    );
  });
});
