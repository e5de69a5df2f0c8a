import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { problemOf } from '../../../shared/countdown/problem.js';
import { renderPrompt, styles } from '../../../shared/countdown/prompts.js';

const problem = problemOf([3, 7, 21], 64);

describe('the prompts', () => {
  it('compact: the numbers, the target and a colon', () => {
    assert.equal(renderPrompt('compact', problem), '3 7 21=64:');
  });

  it('fewshot: a solved question, then ours, ending where the answer begins', () => {
    assert.equal(
      renderPrompt('fewshot', problem),
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

  it('think: a chat whose assistant has begun to think', () => {
    const prompt = renderPrompt('think', problem);
    assert(prompt.startsWith('<|im_start|>system\n'));
    assert(prompt.includes('Using the numbers [3, 7, 21], create an equation that equals 64.'));
    assert(prompt.endsWith('<|im_start|>assistant\nLet me solve this step by step.\n<think>'));
  });

  it('show every example that the answer extraction passes over', () => {
    for (const { render, examples } of Object.values(styles)) {
      for (const example of examples) assert(render(problem).includes(example), example);
    }
  });
});
