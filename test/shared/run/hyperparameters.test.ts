import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { UserError } from '../../../shared/base/errors.js';
import { fitToModel, type Fitting } from '../../../shared/run/hyperparameters.js';
import type { PromptTemplate } from '../../../shared/tasks/prompt-template.js';

const tags = { open: '<answer>', close: '</answer>' };
type Prompt = Pick<PromptTemplate, 'name' | 'chat' | 'answer'>;
const compact: Prompt = { name: 'compact', answer: 'whole' };
const fewshot: Prompt = { name: 'fewshot', answer: tags };
const think: Prompt = { name: 'think', chat: [{ role: 'user', content: '?' }], answer: tags };

const fit = (given: Partial<Fitting>, hiddenSize = 128, prompt = compact) =>
  fitToModel({ lengthPenalty: 0, lengthFree: 0, ...given }, { hiddenSize }, prompt);

describe('the hyperparameters that fit the model', () => {
  const widths = [16, 128, 256, 576, 1_024, 2_560, 4_096];

  it('the learning rate falls with the square of the width to 1e-4, and further where the inverse does', () => {
    const rates = widths.map((width) => fit({}, width).learningRate);
    assert.deepEqual(rates, [2e-3, 2e-3, 5e-4, 1e-4, 1e-4, 1e-4, 6.3e-5]);
  });

  it('the learning rate for examples is inverse to the width', () => {
    const rates = widths.map((width) => fit({ data: 'solver' }, width).learningRate);
    assert.deepEqual(rates, [2e-3, 2e-3, 1e-3, 4.4e-4, 2.5e-4, 1e-4, 6.3e-5]);
  });

  it('the longest answer follows from what the prompt asks for', () => {
    const lengths = [compact, fewshot, think].map((prompt) => fit({}, 128, prompt).maxTokens);
    assert.deepEqual(lengths, [20, 256, 1_024]);
  });

  it('what the user sets is kept, with every other setting', () => {
    const given = { learningRate: 5, maxTokens: 24, lengthPenalty: 1, lengthFree: 23, others: 'x' };
    assert.deepEqual(fitToModel(given, { hiddenSize: 2_560 }, think), given);
  });

  it('an answer too short for the tags and thoughts of its prompt is refused with the remedy', () => {
    const refusal = (maxTokens: number, prompt: Prompt, words: RegExp) => {
      assert.throws(
        () => fit({ maxTokens }, 128, prompt),
        (error) => error instanceof UserError && words.test(error.message),
      );
    };
    refusal(23, think, /^--max-tokens 23 .* --prompt-style think, .* about 24; .* for 1024$/);
    refusal(7, fewshot, /^--max-tokens 7 .* --prompt-style fewshot, .* about 8; .* for 256$/);
    assert.equal(fit({ maxTokens: 1 }).maxTokens, 1);
  });

  it('a length penalty that begins at the longest answer or beyond is refused', () => {
    assert.throws(
      () => fit({ lengthPenalty: 1, lengthFree: 20 }),
      /--length-free 20 must be below --max-tokens, which is 20/,
    );
    assert.equal(fit({ lengthPenalty: 1, lengthFree: 19 }).maxTokens, 20);
    assert.equal(fit({ lengthFree: 20 }).maxTokens, 20);
  });
});
