import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { domainOf, linearScale } from '../../../cli/plot/chart.js';

describe('ticks', () => {
  const ticksIn = (low: number, high: number, wanted: number) =>
    linearScale([low, high], [0, 1], wanted).ticks;

  it('ticks are round numbers', () => {
    assert.deepEqual(ticksIn(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
    assert.deepEqual(ticksIn(0.271, 0.484, 5), [0.3, 0.35, 0.4, 0.45]);
    assert.deepEqual(ticksIn(1_024, 65_536, 5), [20_000, 40_000, 60_000]);
    assert.deepEqual(ticksIn(-3e-5, 3e-5, 3), [-0.00002, 0, 0.00002]);
  });

  it('ticks are within the domain, about as many as requested', () => {
    const domain = fc.tuple(
      fc.double({ min: -1e6, max: 1e6, noNaN: true }),
      fc.double({ min: 1e-3, max: 1e6, noNaN: true }),
    );
    fc.assert(
      fc.property(domain, ([low, span]) => {
        const ticks = ticksIn(low, low + span, 5);
        const slack = 1e-6 * span + 1e-9 * Math.abs(low);
        assert(ticks.every((tick) => tick >= low - slack && tick <= low + span + slack));
        assert(ticks.length >= 2 && ticks.length <= 7, ticks.join(' '));
      }),
    );
  });
});

describe('a scale', () => {
  it('a scale places values between its ends, also upwards', () => {
    const { place } = linearScale([10, 20], [200, 100], 5);
    assert.deepEqual([place(10), place(15), place(20)], [200, 150, 100]);
  });

  it('a scale places a single value in the middle', () => {
    assert.equal(linearScale([3, 3], [0, 100], 5).place(3), 50);
  });
});

describe('a domain', () => {
  it('a domain is slightly wider than its values, and not below 0 for values that cannot be negative', () => {
    assert.deepEqual(domainOf([1, 2]), [0.95, 2.05]);
    assert.deepEqual(domainOf([0, 1]), [0, 1.05]);
    assert.deepEqual(domainOf([-1, 1]), [-1.1, 1.1]);
    const [low, high] = domainOf([0]);
    assert(low <= 0 && high > 0);
  });
});
