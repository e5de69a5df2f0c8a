import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  evaluate,
  print,
  maxChars,
  parse,
  tokenize,
} from '../../../../shared/tasks/countdown/parser.js';
import { fuzzRuns, textMutationsOf } from '../../../support/mutations.js';

const seeds = ['(3*21+7)/2-(14)', '-(-(3))*7/(5-5)', ' 1 +\t2\n', '(('.repeat(20), '9'.repeat(40)];

describe('an expression of any text', () => {
  it('a text is refused by name, or is an expression that can be printed and parsed again', () => {
    const texts = fc.oneof(
      textMutationsOf(seeds),
      fc.string({ unit: fc.constantFrom(...Array.from('0123456789+-*/() ')), maxLength: 80 }),
      fc.string({ unit: 'binary', maxLength: 80 }),
    );
    fc.assert(
      fc.property(texts, (text) => {
        const tokens = tokenize(text);
        if (typeof tokens === 'string') return;
        const expression = parse(tokens);
        if (typeof expression === 'string') return;
        const again = tokenize(print(expression));
        assert(typeof again !== 'string');
        const reread = parse(again);
        assert(typeof reread !== 'string');
        assert.deepEqual(evaluate(reread), evaluate(expression));
      }),
      { numRuns: 3 * fuzzRuns },
    );
  });

  it('a text past the bounds is refused early, however long or deep', () => {
    assert.equal(tokenize('1'.repeat(maxChars + 1)), 'too_long');
    assert.equal(tokenize('('.repeat(10_000_000)), 'too_long');
    const deep = tokenize(`${'('.repeat(490)}1${')'.repeat(490)}`);
    assert(typeof deep !== 'string');
    assert.equal(parse(deep), 'too_deep');
  });
});
