/** A Python `int` or `float`. */
export type PythonNumber = bigint | number;

/** The expression raises an exception in Python, or never finishes. */
export class PythonError extends Error {
  constructor(
    message: string,
    readonly isEndless = false,
  ) {
    super(message);
  }
}

/**
 * The value that Python 3 gives to an expression of digits, `+-*` `/().` and blanks, with its `**`,
 * `//`, signs and floats. Written from the language reference, to compare our rules with TuFT's.
 *
 * @throws {PythonError} where Python would raise.
 */
export function pythonValue(text: string): PythonNumber {
  const tokens = tokensOf(text);
  let position = 0;
  const accept = (...operators: string[]): string | undefined => {
    const token = tokens[position];
    if (typeof token !== 'string' || !operators.includes(token)) return undefined;
    position++;
    return token;
  };

  function sum(): PythonNumber {
    let left = product();
    for (let operator = accept('+', '-'); operator; operator = accept('+', '-')) {
      left = calculated(operator, left, product());
    }
    return left;
  }
  function product(): PythonNumber {
    let left = signed();
    for (let operator = accept('*', '/', '//'); operator; operator = accept('*', '/', '//')) {
      left = calculated(operator, left, signed());
    }
    return left;
  }
  function signed(): PythonNumber {
    const sign = accept('+', '-');
    if (sign === undefined) return power();
    const value = signed();
    return sign === '+' ? value : -value;
  }
  function power(): PythonNumber {
    const base = atom();
    return accept('**') === undefined ? base : raised(base, signed());
  }
  function atom(): PythonNumber {
    const token = tokens[position++];
    if (token !== '(' && typeof token !== 'string' && token !== undefined) return called(token);
    if (token !== '(') throw new PythonError('SyntaxError');
    const value = sum();
    if (accept(')') === undefined) throw new PythonError('SyntaxError');
    return called(value);
  }
  function called(value: PythonNumber): PythonNumber {
    if (tokens[position] === '(') throw new PythonError("TypeError: 'int' object is not callable");
    return value;
  }

  const value = sum();
  if (position < tokens.length) throw new PythonError('SyntaxError');
  return value;
}

const mostParentheses = 200; // the nesting limit of Python's tokenizer
const mostSigns = 1_000; // approximately the limit of its parser's stack

function tokensOf(text: string): (PythonNumber | string)[] {
  const tokens: (PythonNumber | string)[] = [];
  let [depth, signs] = [0, 0];
  const pattern = /(\d+\.\d*|\.\d+)|(\d+)|(\*\*|\/\/|[-+*/()])|([ \t\f]+)|([\r\n]+)/y;
  while (pattern.lastIndex < text.length) {
    const match = pattern.exec(text);
    if (match === null) throw new PythonError('SyntaxError');
    const [, float, int, operator, , lineEnd] = match;
    if (float !== undefined) tokens.push(Number(float));
    else if (int !== undefined) {
      if (/^0+[1-9]/.test(int)) throw new PythonError('SyntaxError: leading zeros');
      tokens.push(BigInt(int));
    } else if (operator !== undefined) {
      if (operator === '(') depth++;
      if (operator === ')') depth--;
      signs = operator === '-' || operator === '+' ? signs + 1 : 0;
      if (depth > mostParentheses || signs > mostSigns) throw new PythonError('too many nested');
      tokens.push(operator);
    } else if (lineEnd !== undefined && depth === 0) throw new PythonError('SyntaxError');
  }
  return tokens;
}

function calculated(operator: string, a: PythonNumber, b: PythonNumber): PythonNumber {
  if (operator.startsWith('/') && Number(b) === 0) throw new PythonError('ZeroDivisionError');
  if (typeof a === 'bigint' && typeof b === 'bigint') {
    if (operator === '+') return a + b;
    if (operator === '-') return a - b;
    if (operator === '*') return a * b;
    return operator === '/' ? quotient(a, b) : floored(a, b);
  }
  const [x, y] = [toFloat(a), toFloat(b)];
  if (operator === '+') return x + y;
  if (operator === '-') return x - y;
  if (operator === '*') return x * y;
  return operator === '/' ? x / y : Math.floor(x / y);
}

const mostBits = 100_000;

function raised(base: PythonNumber, exponent: PythonNumber): PythonNumber {
  if (typeof base === 'bigint' && typeof exponent === 'bigint' && exponent >= 0n) {
    const bits = (base < 0n ? -base : base).toString(2).length * Number(exponent);
    if (bits > 1e9) throw new PythonError('it would not end', true);
    if (bits > mostBits) throw new Error(`${base}**${exponent} is more than this model computes`);
    return base ** exponent;
  }
  const [x, y] = [toFloat(base), toFloat(exponent)];
  if (x === 0 && y < 0) throw new PythonError('ZeroDivisionError');
  if (x < 0 && !Number.isInteger(y)) throw new Error('this model has no complex numbers');
  const value = x ** y;
  if (!Number.isFinite(value) && Number.isFinite(x)) throw new PythonError('OverflowError');
  return value;
}

function toFloat(value: PythonNumber): number {
  const float = Number(value);
  if (typeof value === 'bigint' && !Number.isFinite(float)) throw new PythonError('OverflowError');
  return float;
}

function floored(a: bigint, b: bigint): bigint {
  const towardsZero = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? towardsZero - 1n : towardsZero;
}

/** The nearest double to a / b, as Python divides its integers. */
function quotient(a: bigint, b: bigint): number {
  if (a < 0n !== b < 0n && a !== 0n) return -quotient(a < 0n ? -a : a, b < 0n ? -b : b);
  const [n, d] = [a < 0n ? -a : a, b < 0n ? -b : b];
  const shift = 66 - (n.toString(2).length - d.toString(2).length); // 65 to 67 bits of quotient
  const scaled = shift >= 0 ? (n << BigInt(shift)) / d : n / (d << BigInt(-shift));
  const isExact = shift >= 0 ? (n << BigInt(shift)) % d === 0n : n % (d << BigInt(-shift)) === 0n;
  const value = Number(isExact ? scaled : scaled | 1n) * 2 ** -shift; // the last bit breaks ties
  if (!Number.isFinite(value)) throw new PythonError('OverflowError');
  return value;
}
