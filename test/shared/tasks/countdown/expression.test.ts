import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  evaluate,
  print,
  type Expression,
  maxChars,
  maxDepth,
  parse,
  tokenize,
  type Token,
} from '../../../../shared/tasks/countdown/parser.js';
import { fractionText } from '../../../../shared/tasks/rational.js';
import { anyExpression } from '../../../support/arithmetic.js';

/** The value of a text as a fraction, or why it has none. */
function valueOf(text: string): string {
  const tokens = tokenize(text);
  if (typeof tokens === 'string') return tokens;
  const expression = parse(tokens);
  if (typeof expression === 'string') return expression;
  const value = evaluate(expression);
  return value === undefined ? 'no value' : fractionText(value);
}

describe('an expression', () => {
  for (const [text, value] of [
    ['7', '7'],
    ['1+2*3', '7'],
    ['(1+2)*3', '9'],
    ['8-5-2', '1'],
    ['8-(5-2)', '5'],
    ['64/4/2', '8'],
    ['64/(4/2)', '32'],
    ['1/3+1/6', '1/2'],
    ['1/3*3', '1'], // where floats need luck
    ['8/(3-8/3)', '24'], // the classical game of 24, which needs a fraction on the way
    ['-3+7', '4'],
    ['3--7', '10'],
    ['-(3-7)*2', '8'],
    ['2*-3', '-6'],
    ['--3', '3'],
    [' ( 1\t+\n2 ) \r\n', '3'],
    ['((((5))))', '5'],
    ['0*5', '0'],
    ['1/0', 'no value'],
    ['1/(2-2)+3', 'no value'],
    ['0/0', 'no value'],
  ] as const) {
    it(`the expression ${JSON.stringify(text)} has the value ${value}`, () => {
      assert.equal(valueOf(text), value);
    });
  }

  it('a printed expression parses back to the same rational', () => {
    fc.assert(
      fc.property(anyExpression, (expression) => {
        const value = evaluate(expression);
        assert.equal(valueOf(print(expression)), value ? fractionText(value) : 'no value');
      }),
      { numRuns: 2_000 },
    );
  });

  for (const [text, printed] of [
    ['((1+2)+3)', '1+2+3'],
    ['1+(2-3)', '1+2-3'],
    ['1-(2+3)', '1-(2+3)'],
    ['1-(2*3)', '1-2*3'],
    ['(2*(3*4))', '2*3*4'],
    ['2*(6/3)', '2*6/3'],
    ['8/(4*2)', '8/(4*2)'],
    ['8/(4/2)', '8/(4/2)'],
    ['(8/4)/2', '8/4/2'],
    ['(7-3)*(21-5)', '(7-3)*(21-5)'],
    ['(-3)*7', '-3*7'],
    ['-(3+7)', '-(3+7)'],
  ] as const) {
    it(`the expression ${text} is printed as ${printed}, with the parentheses that its value needs`, () => {
      assert.equal(print(parse(tokenize(text) as Token[]) as Expression), printed);
    });
  }
});

describe('texts that are not expressions', () => {
  const refused: Record<string, string[]> = {
    bad_token: [
      ...[
        '3.5',
        '.5',
        '1e5',
        '0x10',
        '1_000',
        '1,000',
        'NaN',
        'Infinity',
        'x',
        '3=3',
        '3%2',
        '2^3',
      ],
      ...[
        '٣+٧',
        '３+７',
        '3−7',
        '3×7',
        '7÷3',
        '3\u00a0+7',
        '3\u200b+7',
        '½',
        '²',
        '\ud835\udfd9+1',
      ],
      ...[
        '3\0+7',
        '\ufeff3+7',
        '\ud800',
        '3+\udc00',
        '<b>3</b>',
        '3+7;',
        '3+7#',
        '[3]+7',
        '{3}',
        '💯',
      ],
      ...['03+7', '00', '3+07', 'process.exit()', '__import__("os")', '3n+7', '`3`', '3<<2', '3!'],
    ],
    bad_syntax: [
      ...[
        '',
        ' ',
        '()',
        '3 7',
        '1 2+3',
        '3+',
        '*3',
        '+3',
        '3*/7',
        '9//3',
        '2**3',
        '99**98**97',
        '3++7',
      ],
      ...['(3)(7)', '3(7)', '(3)7', '(3+)7', '-', '3-', '(-)', '3+()', '1/0+', '(3 7)'],
    ],
    unbalanced: ['(', ')', '(3', '3)', ')3(', '((3)', '(3))', '3)+(7', '(3+7'],
    too_deep: [
      '('.repeat(maxDepth + 1) + '3' + ')'.repeat(maxDepth + 1),
      '-'.repeat(maxDepth + 1) + '3',
      '-('.repeat(20) + '3' + ')'.repeat(20),
    ],
    too_long: [
      '('.repeat(50_000) + '3' + ')'.repeat(50_000),
      '1+'.repeat(500_000) + '1',
      ' '.repeat(maxChars) + '3',
      '1'.repeat(16),
      '9'.repeat(400),
      'x'.repeat(1_000_000),
    ],
  };
  for (const [reason, texts] of Object.entries(refused)) {
    it(`a text is refused as ${reason}`, () => {
      for (const text of texts)
        assert.equal(valueOf(text), reason, JSON.stringify(text.slice(0, 60)));
    });
  }

  it('parsing never throws, whatever the text', () => {
    const alphabet = fc.constantFrom(...Array.from('0123456789+-*/() .=\n'));
    fc.assert(
      fc.property(
        fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: alphabet })),
        (text) => {
          assert.match(valueOf(text), /^(-?\d+(\/\d+)?|[a-z_ ]+)$/);
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it('the deepest and the longest texts within the bounds have values', () => {
    assert.equal(valueOf('('.repeat(maxDepth) + '3' + ')'.repeat(maxDepth)), '3');
    assert.equal(valueOf('1+'.repeat(maxChars / 2 - 1) + '1'), String(maxChars / 2));
  });
});
