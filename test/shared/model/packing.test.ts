import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  packedBias,
  packedPositions,
  packSharedPrefixes,
  packValues,
  unpackValues,
  type Packable,
} from '../../../shared/model/packing.js';

/** A sequence whose targets are its tokens moved by one, as in training. */
function sequence(text: readonly number[], idle: number): Packable {
  return {
    tokens: Int32Array.from(text.slice(0, -1)),
    targetTokens: Int32Array.from(text.slice(1)),
    idle,
  };
}

describe('packing sequences with a shared prompt', () => {
  // A prompt of 3 tokens: its last position already predicts the answer, so 2 positions are idle.
  const group = [sequence([7, 8, 9, 1, 2], 2), sequence([7, 8, 9, 3], 2)];

  it('packing computes the idle prompt once and keeps the rest of each sequence', () => {
    assert.deepEqual(packSharedPrefixes(group, 100), [
      {
        prefix: 2,
        segments: [
          { sequence: 0, offset: 2, length: 2 },
          { sequence: 1, offset: 4, length: 1 },
        ],
        length: 5,
      },
    ]);
  });

  it('packing never shares a position that the loss counts', () => {
    const counted = group.map((packable) => ({ ...packable, idle: 0 }));
    assert.equal(packSharedPrefixes(counted, 100).length, 2);
  });

  it('packing begins a new row at another prompt, and at the longest row', () => {
    const other = sequence([5, 5, 5, 1], 2);
    assert.equal(packSharedPrefixes([...group, other], 100).length, 2);
    assert.equal(packSharedPrefixes(group, 4).length, 2);
  });

  it('packing counts positions in each sequence, not in the row', () => {
    const [row] = packSharedPrefixes(group, 100);
    assert.deepEqual([...packedPositions(row!, 7)], [0, 1, 2, 3, 2, 0, 0]);
  });

  it('packing lets a token attend to the prefix and its own sequence up to itself', () => {
    const [row] = packSharedPrefixes(group, 100);
    const bias = new Float32Array(36);
    packedBias(row!, 6, bias);
    const seen = Array.from({ length: 6 }, (_, i) =>
      Array.from({ length: 6 }, (__, j) => (bias[i * 6 + j] === 0 ? j : -1)).filter((j) => j >= 0),
    );
    assert.deepEqual(seen, [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 4], [5]]);
  });

  it('packing places every sequence once and gives its values back, whatever the sequences', () => {
    const text = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 2, maxLength: 9 });
    const sequences = fc.array(fc.tuple(text, fc.nat(8)), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(sequences, fc.integer({ min: 1, max: 40 }), (drawn, maxRowTokens) => {
        const all = drawn.map(([tokens, idle]) =>
          sequence(tokens, Math.min(idle, tokens.length - 2)),
        );
        const values = all.map(({ tokens }) => Float32Array.from(tokens));
        const placed: number[] = [];
        for (const row of packSharedPrefixes(all, maxRowTokens)) {
          assert.ok(row.length <= maxRowTokens || row.segments.length === 1);
          const packed = packValues(row, values, new Float32Array(row.length));
          for (const segment of row.segments) {
            placed.push(segment.sequence);
            assert.ok(row.prefix <= all[segment.sequence]!.idle);
            assert.ok(segment.length > 0);
            assert.deepEqual(unpackValues(row, segment, packed), values[segment.sequence]);
          }
        }
        assert.deepEqual(
          placed,
          all.map((_, index) => index),
        );
      }),
    );
  });
});
