import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { styles } from '../../../shared/countdown/prompts.js';
import { answerBlocks, answerText } from '../../../shared/tasks/answer-place.js';
import { shownText } from '../../../shared/tasks/prompt-template.js';

const tags = { open: '<answer>', close: '</answer>' };

describe('an answer between other tags', () => {
  it('is found all the same', () => {
    const boxed = { open: '\\boxed{', close: '}' };
    assert.equal(answerText(boxed, [], 'so 6*7 = \\boxed{42}.'), '42');
    assert.equal(answerText(boxed, [], '{41} <answer>42</answer>'), undefined);
  });
});

describe('the answer blocks of a prompt', () => {
  it('are found with the words before them, each once', () => {
    assert.deepEqual(answerBlocks(tags, shownText(styles.fewshot.en)), [
      'inside <answer>...</answer>',
      'xample: <answer>(1+2)/3</answer>',
      'er>.\nA: <answer>(2*3)+7</answer>',
    ]);
    assert.deepEqual(answerBlocks(tags, shownText(styles.think.en)), [
      'swer in <answer> </answer>',
      'example <answer> (1 + 2) / 3 </answer>',
    ]);
    assert.deepEqual(answerBlocks('whole', shownText(styles.fewshot.en)), []);
  });
  it('are complete, and at the very beginning too', () => {
    assert.deepEqual(answerBlocks(tags, '<answer>1</answer></answer><answer>'), [
      '<answer>1</answer>',
    ]);
    assert.deepEqual(answerBlocks(tags, '</answer><answer><answer>2</answer>'), [
      '<answer><answer>2</answer>',
    ]);
  });
});
