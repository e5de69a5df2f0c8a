import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { integersIn } from '../../../../shared/tasks/integer-answers/score.js';

const valuesIn = (text: string) => integersIn(text).map(({ value }) => Number(value));

describe('the integers of a text', () => {
  const cases: [text: string, values: number[]][] = [
    ['', []],
    ['72', [72]],
    ['She has 3 + 4 = 7 apples.', [3, 4, 7]],
    ['-5 and - 5', [-5, 5]],
    ['10-3', [10, 3]], // a difference
    ['(1+2)-3', [1, 2, 3]],
    ['=-3', [-3]],
    ['\u22125 and \u2212 5', [-5, 5]], // a typographic minus
    ['10\u22123, =\u22121,234', [10, 3, -1_234]],
    ['1,234,567 people', [1_234_567]],
    ['1,2,3', [1, 2, 3]],
    ['1,2345', [1, 2_345]],
    ['72.', [72]],
    ['$72.00', [72]],
    ['7.25', []],
    ['1,234.50', []],
    ['1e5', []],
    ['1e-3 and 2E+4', []],
    ['10^3, 10^{3}', []],
    ['x^2 = 49', [49]],
    ['72^\\circ, 72^{\\circ}', [72, 72]],
    ['\\frac{3}{2} = 1.5', []],
    ['\\boxed{72}', [72]],
    ['$3$-$7$', [3, 7]],
    ['.75', []],
    ['$.50', []],
    ['...75', [75]],
    ['3/2', []],
    ['24/3 = 8', [8]],
    ['-$5', [-5]],
    ['$-5$', [-5]],
    ['$10$ and $-5$', [10, -5]],
    ['$5$-3', [5, 3]],
    ['-\\$5', [-5]],
    ['5 1/2, 5\\frac{1}{2}, 5 \\dfrac{1}{2}, 5\u00bd, 5\u00b2', []],
    ['10\u207b\u00b3 and 10\u207f', []],
    ['5 and 1/2', [5]],
    ['10-$5', [10, 5]],
    ['1{,}234 and 1\\,234 and 1,\\!234', [1_234, 1_234, 1_234]],
    ['1.2.3', []],
    ['９', []],
    ['007', [7]],
  ];
  for (const [text, values] of cases) {
    it(`the text ${JSON.stringify(text)} has the integers ${JSON.stringify(values)}`, () => {
      assert.deepEqual(valuesIn(text), values);
    });
  }

  it('the integers of a text are exact up to 30 digits', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(10n ** 30n) + 1n, max: 10n ** 30n - 1n }), (value) => {
        assert.deepEqual(integersIn(`is ${value}.`), [{ text: String(value), value }]);
      }),
    );
    assert.deepEqual(integersIn('1'.repeat(31)), []);
  });

  it('the integers of any text are parts of the text', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom('0', '1', '23', '-', ',', '.', '(', ')', ' ', 'a') }),
        (text) => {
          for (const { text: written } of integersIn(text)) assert(text.includes(written));
        },
      ),
    );
  });
});
