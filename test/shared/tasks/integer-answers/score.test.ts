import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { problemOfRow, integerAnswers } from '../../../../shared/tasks/integer-answers/task.js';
import { styles } from '../../../../shared/tasks/integer-answers/prompts.js';
import { shownText } from '../../../../shared/tasks/prompt-template.js';
import { Score } from '../../../../shared/wire/scored-group.js';
import { integerAnswersSpec } from '../../../support/integer-answers-task.js';

const problem = problemOfRow({ question: 'How many?', answer: 72 });
const scorer = (prompt: keyof typeof styles, formatPenalty = 0.1) => {
  const task = integerAnswers.open(
    integerAnswersSpec({ prompt: styles[prompt].en, reward: { formatPenalty } }),
  );
  return (completion: string) => task.score(problem, completion);
};

describe('the reward 1[correct] + 0.1 (1[format] - 1)', () => {
  const score = scorer('fewshot');
  const cases: [completion: string, reward: string, reason: string][] = [
    ['8*9 = 72 <answer>72</answer>', '1', 'correct'],
    ['<answer> 72 </answer>', '1', 'correct'],
    ['<answer>72.00</answer>', '1', 'correct'],
    ['<answer>72 eggs</answer>', '9/10', 'correct'],
    ['<answer>72\u00a0</answer>', '9/10', 'correct'],
    ['<answer>8*9 = 72</answer>', '9/10', 'correct'],
    ['<answer>.72</answer>', '-1/10', 'no_answer'],
    ['<answer>144/72</answer>', '-1/10', 'no_answer'],
    ['<answer>-$72</answer>', '-1/10', 'wrong_value'],
    ['So there are 72.', '9/10', 'correct'],
    ['#### 72', '9/10', 'correct'],
    ['<answer>71</answer>', '0', 'wrong_value'],
    ['<answer>-72</answer>', '0', 'wrong_value'],
    ['<answer>\u221272</answer>', '0', 'wrong_value'],
    ['72 <answer>71</answer>', '0', 'wrong_value'],
    ['<answer>72</answer> no, <answer>71</answer>', '0', 'wrong_value'],
    ['There are 72 or 71.', '-1/10', 'wrong_value'],
    ['I do not know.', '-1/10', 'no_answer'],
    ['<answer></answer>', '-1/10', 'no_answer'],
    ['72 <answer>none</answer>', '-1/10', 'no_answer'],
    ['', '-1/10', 'no_answer'],
  ];
  for (const [completion, reward, reason] of cases) {
    it(`the completion ${JSON.stringify(completion)} earns ${reward}: ${reason}`, () => {
      const given = score(completion);
      assert.deepEqual([given.exactReward, given.reason], [reward, reason]);
    });
  }

  it('a negative answer is right with either minus sign', () => {
    const task = integerAnswers.open(integerAnswersSpec({ prompt: styles.fewshot.en }));
    const negative = task.problemOf({ question: 'How cold?', answer: '#### \u22125' });
    for (const sign of ['-', '\u2212']) {
      assert.equal(task.score(negative, `<answer>${sign}5</answer>`).exactReward, '1');
    }
  });

  it('the score reports its parts', () => {
    const parts = { hasFormat: false, isValid: true, isCorrect: true, value: '72' };
    const expected = { reward: 0.9, exactReward: '9/10', reason: 'correct', ...parts };
    assert.deepEqual(score('72'), expected);
  });

  it("the score ignores the prompt's own example", () => {
    const think = scorer('think');
    const asked = shownText(styles.think.en);
    assert.equal(think(`${asked} <answer>72</answer>`).reason, 'correct');
    assert.equal(think(`<answer>72</answer> ${asked}`).reason, 'correct');
  });

  it("the score takes a right answer in the form of the prompt's example, with other words before it", () => {
    const eggs = problemOfRow({ question: 'How many?', answer: 21 });
    for (const [language, right, echo] of [
      ['en', '7*3 = 21. <answer>21</answer>', 'Without 3 they are 24-3 = 21. <answer>21</answer>'],
      ['zh', '7*3 = 21 个。<answer>21</answer>', '还剩 24-3 = 21 个。<answer>21</answer>'],
    ] as const) {
      const task = integerAnswers.open(integerAnswersSpec({ prompt: styles.fewshot[language] }));
      assert.equal(task.score(eggs, right).exactReward, '1');
      assert.equal(task.score(eggs, `${echo} <answer>5</answer>`).reason, 'wrong_value');
      assert.equal(task.score(eggs, `<answer>5</answer> ${echo}`).reason, 'wrong_value');
    }
  });

  it('the score takes the whole completion as the answer if the prompt requests no tags', () => {
    const compact = scorer('compact');
    assert.equal(compact('72').exactReward, '1');
    assert.equal(compact('8*9=72').exactReward, '9/10');
  });

  it('the score takes neither the stop sequence nor the tag of the prompt for part of the answer', () => {
    const whole = { ...styles.compact.en, stop: ['.'] };
    const begun = { ...styles.fewshot.en, text: '{{question}} <answer>' };
    for (const [prompt, completion] of [
      [whole, '72.'],
      [begun, '72</answer>'],
    ] as const) {
      const task = integerAnswers.open(integerAnswersSpec({ prompt }));
      assert.equal(task.score(problem, completion).exactReward, '1');
    }
  });

  it('the score has the penalty that the run sets', () => {
    assert.equal(scorer('fewshot', 0.25)('72').exactReward, '3/4');
    assert.equal(scorer('fewshot', 0)('nothing').exactReward, '0');
  });

  it('the score is a valid message whatever was sampled, and at most 1', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        for (const completion of [text, `<answer>${text}</answer>`]) {
          const given = score(completion);
          assert(Score.safeParse(given).success);
          assert(given.reward <= 1 && given.reward >= -0.1);
        }
      }),
    );
  });
});
