import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { problemOf } from '../../../shared/countdown/problem.js';
import { renderPrompt, styles } from '../../../shared/countdown/prompts.js';
import { CountdownPrompt } from '../../../shared/countdown/spec.js';
import { promptText } from '../../../shared/tasks/prompt.js';
import { chatml } from '../../support/chatml.js';

const problem = problemOf([3, 7, 21], 64);
const textIn = (style: keyof typeof styles) =>
  promptText(renderPrompt(styles[style].en, problem), chatml);

describe('the prompts', () => {
  it('compact: the numbers, the target and a colon', () => {
    assert.equal(textIn('compact'), '3 7 21=64:');
  });

  it('fewshot: a solved question, then ours, ending where the answer begins', () => {
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

  it('think, on a Qwen model: the prompt of the single-file GRPO project, to the letter', () => {
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

  it('are templates that the run configuration takes as they are', () => {
    for (const style of Object.values(styles)) {
      assert.deepEqual(CountdownPrompt.parse(style.en), style.en);
    }
  });
});
