import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { formatOf } from '../../../../shared/model/gguf/block-formats.js';
import { toBfloat16 } from '../../../../shared/model/safetensors.js';

/** Half-precision numbers, little-endian. */
const half = { one: [0x00, 0x3c], quarter: [0x00, 0x34], minusTwo: [0x00, 0xc0] } as const;
const numbers = (count: number, of: (i: number) => number) =>
  Array.from({ length: count }, (_, i) => of(i));
const decode = (type: number, bytes: readonly number[]) => [
  ...formatOf(type)!.decode(Uint8Array.from(bytes)),
];

describe('the number formats of GGUF', () => {
  it('F32, F16 and BF16 are read as they are', () => {
    assert.deepEqual(decode(0, [0x00, 0x00, 0xc0, 0x3f]), [1.5]);
    assert.deepEqual(decode(1, [...half.quarter, ...half.minusTwo]), [0.25, -2]);
    assert.deepEqual(decode(30, [0xc0, 0x3f, 0x00, 0xc0]), [1.5, -2]);
  });

  it('Q4_0 is the scale times the number minus 8, the lower halves of the bytes first', () => {
    // Lower halves 0, 1, … 15; upper halves 15, 14, … 0.
    const block = numbers(16, (i) => i | ((15 - i) << 4));
    assert.deepEqual(decode(2, [...half.quarter, ...block]), [
      ...numbers(16, (i) => (i - 8) / 4),
      ...numbers(16, (i) => (7 - i) / 4),
    ]);
  });

  it('Q4_1 is the scale times the number plus the least value', () => {
    const block = numbers(16, (i) => i | ((15 - i) << 4));
    assert.deepEqual(decode(3, [...half.quarter, ...half.minusTwo, ...block]), [
      ...numbers(16, (i) => i / 4 - 2),
      ...numbers(16, (i) => (15 - i) / 4 - 2),
    ]);
  });

  it('Q8_0 is the scale times a signed byte', () => {
    const bytes = numbers(32, (i) => (i - 16) & 0xff);
    assert.deepEqual(
      decode(8, [...half.minusTwo, ...bytes]),
      numbers(32, (i) => (i - 16) * -2),
    );
  });

  it('several blocks each have their own scale, wherever they are in memory', () => {
    const two = [...half.one, ...numbers(32, () => 3), ...half.minusTwo, ...numbers(32, () => 3)];
    const inside = Uint8Array.from([9, ...two]).subarray(1);
    const expected = [...numbers(32, () => 3), ...numbers(32, () => -6)];
    assert.deepEqual([...formatOf(8)!.decode(inside)], expected);
  });

  it('a format that is not in the table is unknown', () => {
    assert.equal(formatOf(12), undefined);
  });

  it('bfloat16 is the nearest number, and the even one of two that are as near', () => {
    const values = [1, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -20, -1.5, Infinity, NaN];
    const words = [...toBfloat16(Float32Array.from(values))];
    assert.deepEqual(words, [0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xbfc0, 0x7f80, 0x7fc0]);
  });
});
