import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { maxReadChars } from '../../../../shared/tasks/answer-place.js';
import { evaluate, print } from '../../../../shared/tasks/countdown/parser.js';
import { problemOf } from '../../../../shared/tasks/countdown/problem.js';
import { scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import type { RewardSpec } from '../../../../shared/tasks/countdown/spec.js';
import { forms, zeroOrOne } from '../../../support/countdown-task.js';
import { Score } from '../../../../shared/wire/scored-group.js';
import { anyExpression, leaves } from '../../../support/arithmetic.js';

const problem = problemOf([3, 7, 21], 84);
const none: RewardSpec = { ...zeroOrOne, formatScore: 0.1 };
const constant: RewardSpec = { ...none, shaping: 'constant' };
const continuous: RewardSpec = { ...none, shaping: 'continuous' };
const score = (answer: string, reward = continuous) =>
  scoreAnswer(forms.fewshot, problem, `<answer>${answer}</answer>`, reward);

describe('the reason of a score', () => {
  const cases: [answer: string, reason: string, isValid: boolean][] = [
    ['(7-3)*21', 'correct', true],
    ['21*(7-3)', 'correct', true],
    ['-21*(3-7)', 'correct', true],
    ['(7+3)*21', 'wrong_value', true],
    ['3-7-21', 'wrong_value', true],
    ['84', 'wrong_numbers', false],
    ['7*21', 'wrong_numbers', false],
    ['(7-3)*21+3-3', 'wrong_numbers', false],
    ['(7-3)*2*1', 'wrong_numbers', false],
    ['(7-3)*21*1', 'wrong_numbers', false],
    ['', 'wrong_numbers', false],
    ['3 7 21', 'bad_syntax', false],
    ['(7-3)*21=84', 'bad_token', false],
    ['(7-3)×21', 'bad_token', false],
    ['((7-3)*21', 'unbalanced', false],
    ['3//7//21', 'bad_syntax', false],
    ['3**7**21', 'bad_syntax', false], // a Python eval would still be computing
    [`${' '.repeat(2_000)}(7-3)*21`, 'too_long', false],
  ];
  for (const [answer, reason, isValid] of cases) {
    it(`the answer ${JSON.stringify(answer.slice(-20))} is scored as ${reason}`, () => {
      const { reward: _reward, exactReward: _exactReward, value, ...parts } = score(answer);
      const isCorrect = reason === 'correct';
      assert.deepEqual(parts, { hasFormat: true, isValid, isCorrect, reason });
      assert.equal(value !== undefined, isValid);
    });
  }

  it('an answer with a division by zero has no value', () => {
    const { reason, isValid } = scoreAnswer(
      forms.compact,
      problemOf([3, 3, 5], 5),
      '5/(3-3)',
      none,
    );
    assert.deepEqual({ reason, isValid }, { reason: 'division_by_zero', isValid: false });
  });

  it('a completion without an answer earns nothing under any shaping', () => {
    for (const reward of [none, constant, continuous]) {
      assert.deepEqual(scoreAnswer(forms.fewshot, problem, 'The answer is (7-3)*21', reward), {
        reward: 0,
        exactReward: '0',
        hasFormat: false,
        isValid: false,
        isCorrect: false,
        reason: 'no_answer',
      });
    }
  });

  it('a random reward is 1 for half of the right and half of the wrong answers, and always the same', () => {
    const random: RewardSpec = { ...none, shaping: 'random' };
    for (const [answer, isCorrect] of [
      ['(7-3)*21', true],
      ['(7+3)*21', false],
    ] as const) {
      let rewarded = 0;
      for (let blanks = 0; blanks < 400; blanks++) {
        const first = score(`${' '.repeat(blanks)}${answer}`, random);
        assert.equal(first.isCorrect, isCorrect);
        assert.equal(first.exactReward, String(first.reward));
        assert.deepEqual(score(`${' '.repeat(blanks)}${answer}`, random), first);
        rewarded += first.reward;
      }
      assert(rewarded > 160 && rewarded < 240, String(rewarded)); // 4 standard deviations
    }
  });

  it('a value is compared exactly: the smallest difference from the target is wrong', () => {
    // 99999/99998 is 1.00001…, which a tolerance of 1e-4 would take for 1.
    const near = problemOf([99_998, 99_999], 1);
    assert.equal(scoreAnswer(forms.compact, near, '99999/99998', none).reason, 'wrong_value');
    assert.equal(
      scoreAnswer(forms.compact, problemOf([1, 3, 3], 1), '1/3*3', none).reason,
      'correct',
    );
  });

  it('a complete answer counts although a truncated one follows it', () => {
    const text = '<answer>(7-3)*21</answer> or perhaps <answer>(7+3)';
    assert.equal(scoreAnswer(forms.fewshot, problem, text, none).reward, 1);
  });
});

describe('an answer that leaves numbers out', () => {
  const some: RewardSpec = { ...constant, numbersToUse: 'some' };
  const cases: [answer: string, all: string, some: string][] = [
    ['(7-3)*21', 'correct', 'correct'],
    ['7*21', 'wrong_numbers', 'wrong_value'],
    ['21', 'wrong_numbers', 'wrong_value'],
    ['21+21', 'wrong_numbers', 'wrong_numbers'], // each number still counts once
    ['7*12', 'wrong_numbers', 'wrong_numbers'],
    ['', 'wrong_numbers', 'wrong_numbers'],
    ['-', 'wrong_numbers', 'wrong_numbers'],
  ];
  for (const [answer, withAll, withSome] of cases) {
    it(`the answer ${JSON.stringify(answer)} is ${withAll} if all numbers must be used, else ${withSome}`, () => {
      assert.equal(score(answer, constant).reason, withAll);
      assert.equal(score(answer, some).reason, withSome);
    });
  }

  it('an answer that leaves numbers out earns as much as one with every number', () => {
    const either = problemOf([3, 7, 21], 147);
    assert.equal(scoreAnswer(forms.compact, either, '7*21', some).exactReward, '1');
    assert.equal(scoreAnswer(forms.compact, either, '7*21', constant).exactReward, '1/10');
  });
});

describe('the parts of a score', () => {
  it('the parts of a score give the value of a valid answer in lowest terms', () => {
    assert.equal(score('3/7+21').value, '150/7');
    assert.equal(score('3-7-21').value, '-25');
    assert.equal(score('(7-3)*21').value, '84');
    assert.equal(score('3/(7-7)').value, undefined);
  });

  it('the parts of a score distinguish a missing answer from a completion that is too long to read', () => {
    const long = (text: string) => scoreAnswer(forms.fewshot, problem, text, constant);
    assert.equal(long('x'.repeat(maxReadChars)).reason, 'no_answer');
    assert.equal(long(`<answer>(7-3)*21</answer>${'x'.repeat(maxReadChars)}`).reason, 'too_long');
    assert.equal(long(`${'x'.repeat(1_000_000)}<answer>(7-3)*21</answer>`).reason, 'correct');
  });
});

describe('the rewards, worked by hand', () => {
  // f = 1/10. (7+3)*21 = 210, off by 126: 1/10 + 9/10 · 1/127 = (127 + 9)/1270 = 68/635.
  // 3*21+7 = 70, off by 14: 1/10 + 9/10 · 1/15 = 1/10 + 3/50 = 4/25.
  // 21/7+3 = 6, off by 78: 1/10 + 9/10 · 1/79 = 88/790 = 44/395.
  // 3/7+21 = 150/7, off by 438/7: 1/10 + 9/10 · 7/445 = (445 + 63)/4450 = 254/2225.
  const cases: [answer: string, none: string, constant: string, continuous: string][] = [
    ['(7-3)*21', '1', '1', '1'],
    ['(7+3)*21', '0', '1/10', '68/635'],
    ['3*21+7', '0', '1/10', '4/25'],
    ['21/7+3', '0', '1/10', '44/395'],
    ['3/7+21', '0', '1/10', '254/2225'],
    ['7*21', '0', '1/10', '1/10'],
    ['hello', '0', '1/10', '1/10'],
  ];
  for (const [answer, ...rewards] of cases) {
    it(`the answer ${answer} earns ${rewards.join(', ')} without, with constant, with continuous shaping`, () => {
      const scores = [none, constant, continuous].map((reward) => score(answer, reward));
      assert.deepEqual(
        scores.map(({ exactReward }) => exactReward),
        rewards,
      );
      for (const { reward, exactReward } of scores) {
        const [numerator, denominator = 1] = exactReward.split('/').map(Number);
        assert.equal(reward, numerator! / denominator);
      }
    });
  }

  it('every answer in the right form earns exactly 1 with a format score of 1', () => {
    assert.equal(score('3*21+7', { ...continuous, formatScore: 1 }).exactReward, '1');
  });
});

describe('scores of random expressions', () => {
  const valued = anyExpression
    .map((expression) => ({ expression, value: evaluate(expression) }))
    .filter(({ expression, value }) => {
      const count = leaves(expression).length;
      return value !== undefined && value.numerator % value.denominator === 0n && count <= 16;
    })
    .map(({ expression, value }) => ({
      text: print(expression),
      problem: problemOf(leaves(expression), Number(value!.numerator / value!.denominator)),
    }))
    .filter(({ problem: { target } }) => Number.isSafeInteger(target));

  it('a score is 1 if the value of the expression is the target', () => {
    fc.assert(
      fc.property(valued, ({ text, problem }) => {
        assert.equal(scoreAnswer(forms.compact, problem, text, none).exactReward, '1');
      }),
    );
  });

  it('a score is not 1 if any number was changed, added or left out', () => {
    fc.assert(
      fc.property(
        valued,
        fc.nat(),
        fc.integer({ min: 1, max: 50 }),
        ({ text, problem }, at, by) => {
          const { numbers, target } = problem;
          const i = at % numbers.length;
          for (const changed of [
            numbers.with(i, numbers[i]! + by),
            [...numbers, by],
            numbers.toSpliced(i, 1),
          ]) {
            const judged = scoreAnswer(forms.compact, problemOf(changed, target), text, continuous);
            assert.equal(judged.reason, 'wrong_numbers');
            assert.equal(judged.exactReward, '1/10');
          }
        },
      ),
    );
  });

  it('a score is below 1 and above the format score for another target, and falls with the distance', () => {
    fc.assert(
      fc.property(valued, fc.integer({ min: 1, max: 1_000 }), ({ text, problem }, distance) => {
        const at = (offset: number) =>
          scoreAnswer(
            forms.compact,
            problemOf(problem.numbers, problem.target + offset),
            text,
            continuous,
          ).reward;
        assert(at(distance) < 1 && at(distance) > 0.1);
        assert(at(distance + 1) < at(distance));
        assert.equal(at(-distance), at(distance));
      }),
    );
  });

  it('a score is a valid message whatever was sampled', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary' }),
        fc.constantFrom(forms.compact, forms.fewshot, forms.think),
        (text, style) => {
          for (const completion of [text, `<answer>${text}</answer>`]) {
            const judged = scoreAnswer(style, problem, completion, continuous);
            assert(Score.safeParse(judged).success);
            assert(judged.reward >= 0 && judged.reward < 1);
          }
        },
      ),
      { numRuns: 500 },
    );
  });
});
