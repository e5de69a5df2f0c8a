/**
 * An exact fraction with a positive denominator. Arithmetic does not reduce it, so it needs
 * only multiplications; `reduced` and `fractionText` give lowest terms.
 */
export interface Rational {
  readonly numerator: bigint;
  readonly denominator: bigint; // > 0
}

export const zero: Rational = { numerator: 0n, denominator: 1n };
export const one: Rational = { numerator: 1n, denominator: 1n };

/** @throws {RangeError} unless `value` is a safe integer. */
export function integer(value: number): Rational {
  if (!Number.isSafeInteger(value)) throw new RangeError(`${value} is not a safe integer`);
  return { numerator: BigInt(value), denominator: 1n };
}

/**
 * The number as written in decimal: 0.1 becomes 1/10, although its double is slightly more.
 *
 * @throws {RangeError} if the value is not finite.
 */
export function decimal(value: number): Rational {
  const [, sign, whole, fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value)) ?? [];
  if (whole === undefined) throw new RangeError(`${value} has no decimal form`);
  const digits = BigInt(whole + fraction) * (sign === '-' ? -1n : 1n);
  const places = fraction.length - Number(exponent);
  return places >= 0
    ? { numerator: digits, denominator: 10n ** BigInt(places) }
    : { numerator: digits * 10n ** BigInt(-places), denominator: 1n };
}

export function add(a: Rational, b: Rational): Rational {
  return {
    numerator: a.numerator * b.denominator + b.numerator * a.denominator,
    denominator: a.denominator * b.denominator,
  };
}

export function negate({ numerator, denominator }: Rational): Rational {
  return { numerator: -numerator, denominator };
}

export function subtract(a: Rational, b: Rational): Rational {
  return add(a, negate(b));
}

export function multiply(a: Rational, b: Rational): Rational {
  return {
    numerator: a.numerator * b.numerator,
    denominator: a.denominator * b.denominator,
  };
}

/** a / b, or undefined when b is 0. */
export function divide(a: Rational, b: Rational): Rational | undefined {
  if (b.numerator === 0n) return undefined;
  const sign = b.numerator < 0n ? -1n : 1n;
  return {
    numerator: sign * a.numerator * b.denominator,
    denominator: sign * a.denominator * b.numerator,
  };
}

export function absolute(a: Rational): Rational {
  return a.numerator < 0n ? negate(a) : a;
}

export function equals(a: Rational, b: Rational): boolean {
  return a.numerator * b.denominator === b.numerator * a.denominator;
}

/** The same value in lowest terms. */
export function reduced({ numerator, denominator }: Rational): Rational {
  const divisor = greatestCommonDivisor(numerator < 0n ? -numerator : numerator, denominator);
  return { numerator: numerator / divisor, denominator: denominator / divisor };
}

/** `13/40`, or `2` for an integer: equal values have equal texts. */
export function fractionText(a: Rational): string {
  const { numerator, denominator } = reduced(a);
  return denominator === 1n ? numerator.toString() : `${numerator}/${denominator}`;
}

/** The nearest double, or within two units in the last place if the parts exceed 2^53. */
export function toNumber(a: Rational): number {
  const { numerator, denominator } = reduced(a);
  // A part beyond 1,000 bits would overflow a double; the leading bits determine the quotient.
  const excess = BigInt(Math.max(hexDigits(numerator), hexDigits(denominator)) - 250) * 4n;
  return excess > 0n
    ? Number(numerator >> excess) / Number(denominator >> excess)
    : Number(numerator) / Number(denominator);
}

function hexDigits(value: bigint): number {
  return value.toString(16).length;
}

function greatestCommonDivisor(a: bigint, b: bigint): bigint {
  while (b !== 0n) [a, b] = [b, a % b];
  return a;
}
