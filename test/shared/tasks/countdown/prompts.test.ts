import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answerForm, scoreAnswer } from '../../../../shared/tasks/countdown/score.js';
import { problemOf } from '../../../../shared/tasks/countdown/problem.js';
import { renderPrompt, styles } from '../../../../shared/tasks/countdown/prompts.js';
import { CountdownPrompt } from '../../../../shared/tasks/countdown/spec.js';
import { promptText } from '../../../../shared/tasks/prompt.js';
import { chatml } from '../../../support/chatml.js';
import { zeroOrOne } from '../../../support/countdown-task.js';

const problem = problemOf([3, 7, 21], 64);
const textIn = (style: keyof typeof styles) =>
  promptText(renderPrompt(styles[style].en, problem), chatml);

describe('the prompts', () => {
  it('the compact prompt has the numbers, the target and a colon', () => {
    assert.equal(textIn('compact'), '3 7 21=64:');
  });

  it('the fewshot prompt has a solved question, then the new one, and ends where the answer begins', () => {
    assert.equal(
      textIn('fewshot'),
      'Q: Using the numbers 2, 3, 7, reach the target number 13. ' +
        'You may use +, -, *, / and parentheses, and each number can only be used once. ' +
        'Put ONLY the final expression inside <answer>...</answer>. ' +
        'Example: <answer>(1+2)/3</answer>.\n' +
        'A: <answer>(2*3)+7</answer>\n\n' +
        'Q: Using the numbers 3, 7, 21, reach the target number 64. ' +
        'You may use +, -, *, / and parentheses, and each number can only be used once. ' +
        'Put ONLY the final expression inside <answer>...</answer>. ' +
        'Example: <answer>(1+2)/3</answer>.\n' +
        'A:',
    );
  });

  it('the think prompt of a Qwen model equals the prompt of the single-file GRPO project', () => {
    assert.equal(
      textIn('think'),
      '<|im_start|>system\nYou are a helpful assistant. You first thinks about the reasoning process in the ' +
        'mind and then provides the user with the answer.<|im_end|>\n<|im_start|>user\n Using the numbers ' +
        '[3, 7, 21], create an equation that equals 64. You can use basic arithmetic operations (+, -, *, /) ' +
        'and each number can only be used once. Show your work in <think> </think> tags. And return the final ' +
        'answer in <answer> </answer> tags, for example <answer> (1 + 2) / 3 </answer>.<|im_end|>\n' +
        '<|im_start|>assistant\nLet me solve this step by step.\n<think>',
    );
  });

  it('the Chinese prompts have the same numbers, tags and stop sequences', () => {
    const text = (style: 'fewshot' | 'think') =>
      promptText(renderPrompt(styles[style].zh, problem), chatml);
    assert.equal(
      text('fewshot'),
      '问：使用数字 2, 3, 7，得到目标数 13。可以使用 +、-、*、/ 和括号，每个数字只能使用一次。' +
        '只把最终的算式写在 <answer>...</answer> 中。例如：<answer>(1+2)/3</answer>。\n' +
        '答：<answer>(2*3)+7</answer>\n\n' +
        '问：使用数字 3, 7, 21，得到目标数 64。可以使用 +、-、*、/ 和括号，每个数字只能使用一次。' +
        '只把最终的算式写在 <answer>...</answer> 中。例如：<answer>(1+2)/3</answer>。\n' +
        '答：',
    );
    assert.match(text('think'), /^<\|im_start\|>system\n你是.*使用数字 \[3, 7, 21\].*等于 64 /s);
    assert.match(text('think'), /<\|im_start\|>assistant\n让我一步一步地解决这个问题。\n<think>$/);
    for (const style of ['fewshot', 'think'] as const) {
      const { answer, stop, allowsTargetTail } = styles[style].en;
      const { zh } = styles[style];
      assert.deepEqual([zh.answer, zh.stop, zh.allowsTargetTail], [answer, stop, allowsTargetTail]);
    }
  });

  it('the examples in Chinese prompts are not taken as answers', () => {
    const score = (style: 'fewshot' | 'think', completion: string) =>
      scoreAnswer(answerForm(styles[style].zh), problemOf([1, 2, 3], 1), completion, zeroOrOne);
    const echo = '例如：<answer>(1+2)/3</answer>。';
    assert.equal(score('fewshot', echo).reason, 'no_answer');
    assert.equal(score('fewshot', `<answer>3-2*1</answer> ${echo}`).reason, 'correct');
    assert.equal(score('think', '例如 <answer> (1 + 2) / 3 </answer>').reason, 'no_answer');
    assert.equal(score('think', '思考</think><answer>(1+2)/3 = 1</answer>').reason, 'correct');
  });

  it('the prompts are templates that the run configuration accepts unchanged', () => {
    const { compact, fewshot, think } = styles;
    for (const template of [compact.en, fewshot.en, fewshot.zh, think.en, think.zh]) {
      assert.deepEqual(CountdownPrompt.parse(template), template);
    }
  });
});
