import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import * as rational from '../../../shared/tasks/rational.js';
import type { Rational } from '../../../shared/tasks/rational.js';

const fraction = (numerator: number, denominator = 1): Rational => ({
  numerator: BigInt(numerator),
  denominator: BigInt(denominator),
});
const text = rational.fractionText;

describe('exact fractions', () => {
  it('exact fractions add, subtract, multiply and divide as on paper', () => {
    assert.equal(text(rational.add(fraction(1, 3), fraction(1, 6))), '1/2');
    assert.equal(text(rational.subtract(fraction(1, 3), fraction(5, 6))), '-1/2');
    assert.equal(text(rational.multiply(fraction(2, 3), fraction(3, 4))), '1/2');
    assert.equal(text(rational.divide(fraction(2, 3), fraction(-4))!), '-1/6');
  });

  it('exact fractions have no quotient by zero, however zero is written', () => {
    assert.equal(rational.divide(fraction(1), fraction(0, 7)), undefined);
  });

  it('exact fractions read a decimal as it is written, not as its double', () => {
    assert.equal(text(rational.decimal(0.1)), '1/10');
    assert.equal(text(rational.decimal(-2.5)), '-5/2');
    assert.equal(text(rational.decimal(1e-7)), '1/10000000');
    assert.equal(text(rational.decimal(1.5e21)), '1500000000000000000000');
    assert.throws(() => rational.decimal(Number.NaN), RangeError);
  });

  it('exact fractions refuse an integer that a double cannot represent', () => {
    assert.throws(() => rational.integer(2 ** 53), RangeError);
    assert.throws(() => rational.integer(0.5), RangeError);
  });

  const anyFraction = fc
    .tuple(
      fc.bigInt({ min: -(10n ** 40n), max: 10n ** 40n }),
      fc.bigInt({ min: 1n, max: 10n ** 40n }),
    )
    .map(([numerator, denominator]): Rational => ({ numerator, denominator }));

  it('exact fractions undo addition by subtraction and multiplication by division, for all values', () => {
    fc.assert(
      fc.property(anyFraction, anyFraction, (a, b) => {
        assert(rational.equals(rational.subtract(rational.add(a, b), b), a));
        if (b.numerator !== 0n) {
          assert(rational.equals(rational.divide(rational.multiply(a, b), b)!, a));
        }
      }),
    );
  });

  it('exact fractions have one text for one value', () => {
    fc.assert(
      fc.property(anyFraction, fc.bigInt({ min: 1n, max: 10n ** 20n }), (a, factor) => {
        const same = { numerator: a.numerator * factor, denominator: a.denominator * factor };
        assert.equal(text(same), text(a));
      }),
    );
  });

  it('exact fractions become the nearest double if their parts are safe integers', () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), fc.integer({ min: 1 }), (numerator, denominator) => {
        assert.equal(rational.toNumber(fraction(numerator, denominator)), numerator / denominator);
      }),
    );
  });

  it('exact fractions become a double also if their parts are beyond the range of doubles', () => {
    const huge = 10n ** 400n;
    assert.equal(rational.toNumber({ numerator: huge, denominator: 4n * huge + 1n }), 0.25);
  });
});
