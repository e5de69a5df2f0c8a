import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { extractAnswer, scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import { problemOf } from '../../../../shared/tasks/countdown/problem.js';
import { renderPrompt, styles } from '../../../../shared/tasks/countdown/prompts.js';
import { promptText } from '../../../../shared/tasks/prompt.js';
import { chatml } from '../../../support/chatml.js';
import { forms, zeroOrOne } from '../../../support/countdown-task.js';

const problem = problemOf([3, 7, 21], 64);
const fewshot = (completion: string) => extractAnswer(forms.fewshot, problem, completion);
const think = (completion: string) => extractAnswer(forms.think, problem, completion)?.trim();

describe('the answer of a compact completion', () => {
  it('the answer of a compact completion is all of it', () => {
    assert.equal(extractAnswer(forms.compact, problem, '(7-3)*21'), '(7-3)*21');
  });
  it('the answer of an empty completion is missing', () => {
    assert.equal(extractAnswer(forms.compact, problem, ''), undefined);
    assert.equal(extractAnswer(forms.compact, problem, ' \n'), undefined);
  });
});

describe('whitespace in an answer', () => {
  const reason = (style: keyof typeof forms, completion: string) =>
    scoreAnswer(forms[style], problemOf([60, 4], 64), completion, zeroOrOne).reason;
  const places: [place: string, style: keyof typeof forms, text: (blank: string) => string][] = [
    ['before an answer', 'think', (blank) => `<answer>${blank}60+4</answer>`],
    ['inside an answer', 'think', (blank) => `<answer>60${blank}+4</answer>`],
    ['before the target', 'think', (blank) => `<answer>60+4 =${blank}64</answer>`],
    ['after the target', 'think', (blank) => `<answer>60+4 = 64${blank}</answer>`],
    ['after a compact answer', 'compact', (blank) => `60+4${blank}`],
  ];
  for (const [place, style, text] of places) {
    it(`spaces, tabs and line ends are accepted ${place}, but no other whitespace`, () => {
      for (const blank of [' ', '\t', '\n', '\r\n'])
        assert.equal(reason(style, text(blank)), 'correct', JSON.stringify(blank));
      for (const other of ['\u00a0', '\u2003', '\u3000', '\ufeff', '\f', '\v', '\u2028'])
        assert.equal(reason(style, text(other)), 'bad_token', JSON.stringify(other));
    });
  }

  it('an answer of whitespace is missing, and other whitespace alone is a bad token', () => {
    assert.equal(reason('compact', ' \t\r\n'), 'no_answer');
    assert.equal(reason('compact', '\u00a0'), 'bad_token');
  });
});

describe('the answer of a completion with tags', () => {
  const cases: [completion: string, answer: string | undefined][] = [
    [' <answer>3+7*21</answer>', '3+7*21'],
    ['<answer>1</answer> no: <answer>2</answer>', '2'],
    ['<answer>1</answer> and <answer>2', '1'], // the last complete one
    ['<answer>1<answer>2</answer>', '2'],
    ['<answer>1</answer></answer>', '1'],
    ['</answer><answer>', undefined],
    ['<answer>3+7', undefined],
    ['3+7</answer>', undefined],
    ['3+7', undefined],
    ['', undefined],
    ['<answer></answer>', ''],
    ['<ANSWER>3</ANSWER>', undefined],
    ['<answer >3</answer >', undefined],
    ['<answer>3\n+7</answer>', '3\n+7'],
    ['<answer><b>3</b></answer>', '<b>3</b>'],
    ['<answer>3</answer>\0\ud800', '3'],
  ];
  for (const [completion, answer] of cases) {
    it(`the completion ${JSON.stringify(completion)} has the answer ${JSON.stringify(answer)}`, () => {
      assert.equal(fewshot(completion), answer);
    });
  }

  it("the answer is never the prompt's own example, however often it is repeated", () => {
    for (const style of ['fewshot', 'think'] as const) {
      const echo = promptText(renderPrompt(styles[style].en, problem), chatml);
      assert.equal(extractAnswer(forms[style], problem, echo), undefined);
      assert.equal(
        extractAnswer(forms[style], problem, `<answer>3</answer> ${echo.repeat(3)}`),
        '3',
      );
    }
  });

  it("the answer is not the prompt's own example even if only a part of the prompt is repeated", () => {
    for (const style of ['fewshot', 'think'] as const) {
      const echo = promptText(renderPrompt(styles[style].en, problem), chatml);
      for (let end = 0; end <= echo.length; end++) {
        assert.equal(extractAnswer(forms[style], problem, echo.slice(0, end)), undefined);
      }
      assert.equal(
        extractAnswer(forms[style], problem, `${echo} <answer>3+7*21</answer>`),
        '3+7*21',
      );
    }
  });

  it('the answer may equal an example if it is given as an answer', () => {
    assert.equal(fewshot(' <answer>(1+2)/3</answer>'), '(1+2)/3');
  });

  it('the answer is found, or found missing, in a megabyte of tags without delay', () => {
    const million = 1_000_000;
    assert.equal(fewshot('<answer>'.repeat(million / 8)), undefined);
    assert.equal(fewshot('</answer>'.repeat(million / 9)), undefined);
    assert.equal(fewshot('Example: <answer>(1+2)/3</answer>.'.repeat(million / 34)), undefined);
    assert.equal(fewshot(`${'<answer>'.repeat(million / 8)}7</answer>`), '7');
  });
});

describe('a tail "= target"', () => {
  it('a tail "= target" is removed from a think answer, since models that show their work write it', () => {
    assert.equal(think('<answer> 42 + 19 + 4 - 1 = 64 </answer>'), '42 + 19 + 4 - 1');
    assert.equal(think('<answer>(71 - 70 + 62)=64</answer>'), '(71 - 70 + 62)');
  });
  it('a tail with another number stays, and the answer is refused', () => {
    assert.equal(think('<answer>3+7=10</answer>'), '3+7=10');
    assert.equal(think('<answer>3+7=64.0</answer>'), '3+7=64.0');
  });
  it('a tail "= target" is not removed from a fewshot answer', () => {
    assert.equal(fewshot('<answer>3+7=64</answer>'), '3+7=64');
  });
  it('a tail "= target" is accepted or refused by configuration, whatever the style', () => {
    const text = '<answer>3+7=64</answer>';
    assert.equal(extractAnswer(forms.fewshot, problem, text, 'accept'), '3+7');
    assert.equal(extractAnswer(forms.compact, problem, '3+7=64', 'accept'), '3+7');
    assert.equal(extractAnswer(forms.think, problem, text, 'refuse'), '3+7=64');
  });
  it('a tail "= target" is removed only once', () => {
    assert.equal(think('<answer>3+7=64=64</answer>'), '3+7=64');
  });
});
