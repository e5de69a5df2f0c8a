import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decode as unpack, encode as pack } from '@msgpack/msgpack';
import fc from 'fast-check';
import { z } from 'zod';
import { decode, encode, Float32Block, Int32Block, WireError } from '../../../shared/wire/codec.js';

const Blocks = z.strictObject({ tokens: Int32Block, logprobs: Float32Block });

describe('the codec', () => {
  it('the codec returns every array of ids and logprobs bit by bit', () => {
    const ids = fc.int32Array({ maxLength: 64 });
    const values = fc.float32Array({ maxLength: 64, noNaN: true });
    fc.assert(
      fc.property(ids, values, (tokens, logprobs) => {
        const back = decode(Blocks, 'test', encode(Blocks, { tokens, logprobs }));
        assert.deepEqual(back.tokens, Int32Array.from(tokens));
        assert.deepEqual(
          Buffer.from(back.logprobs.buffer),
          Buffer.from(Float32Array.from(logprobs).buffer),
        );
      }),
    );
  });

  it('the codec writes 4 little-endian bytes an element, as any language reads them', () => {
    const body = unpack(
      encode(Blocks, { tokens: Int32Array.of(1, -2), logprobs: Float32Array.of(-0.5) }),
    ) as Record<string, Uint8Array>;
    assert.deepEqual([...body['tokens']!], [1, 0, 0, 0, 254, 255, 255, 255]);
    assert.deepEqual([...body['logprobs']!], [0, 0, 0, 191]);
  });

  it('the codec sends the part of a larger array that a view shows', () => {
    const tokens = Int32Array.of(1, 2, 3, 4).subarray(1, 3);
    const back = decode(Blocks, 'test', encode(Blocks, { tokens, logprobs: new Float32Array() }));
    assert.deepEqual(back.tokens, Int32Array.of(2, 3));
  });

  it('the codec refuses an incomplete block', () => {
    const body = pack({ tokens: new Uint8Array(5), logprobs: new Uint8Array(0) });
    assert.throws(() => decode(Blocks, 'x.y', body), {
      name: 'WireError',
      message: 'x.y: tokens: a block of 4-byte elements cannot have 5 bytes',
    });
  });

  it('the codec refuses to encode a value that violates its schema', () => {
    const Positive = z.strictObject({ n: z.number().positive() });
    assert.throws(() => encode(Positive, { n: -1 }), /cannot send: n: Too small/);
  });

  it('the codec names every wrong field', () => {
    const Two = z.strictObject({ a: z.string(), b: z.number() });
    assert.throws(() => decode(Two, 'x', pack({ a: 1, b: 'x' })), /^WireError: x: a: .*; b: /);
  });

  it('the codec decodes any bytes to a value or a WireError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        try {
          decode(Blocks, 'test', bytes);
        } catch (caught) {
          assert(caught instanceof WireError);
        }
      }),
    );
  });
});
