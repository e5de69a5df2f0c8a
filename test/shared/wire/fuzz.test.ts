import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decode as plainDecode, encode as pack } from '@msgpack/msgpack';
import fc from 'fast-check';
import { ticketOf } from '../../../shared/broker/dead-letter-watch.js';
import { decode, encode, WireError } from '../../../shared/wire/codec.js';
import { unpack } from '../../../shared/wire/unpack.js';
import { everyMessage } from '../../support/every-message.js';
import { fuzzRuns, mutationsOf, refusesOnly } from '../../support/mutations.js';

const schemas = new Set(everyMessage.map(({ schema }) => schema));
const good = everyMessage.map(({ schema, message }) => encode(schema, message));

/** What reading came to: a map with the key `__proto__`, for one, is refused by the library. */
function outcome(read: (data: Uint8Array) => unknown, bytes: Uint8Array) {
  try {
    return { value: read(bytes) };
  } catch (error) {
    return { error: String(error) };
  }
}

describe('a message of any bytes', () => {
  it('a message of any bytes is decoded or refused with a WireError', () => {
    fc.assert(
      fc.property(mutationsOf(good), (bytes) => {
        for (const schema of schemas) refusesOnly([WireError], () => decode(schema, 'x', bytes));
        ticketOf({ data: bytes, msgId: undefined }); // which looks into what nobody could read, and never throws
      }),
      { numRuns: fuzzRuns },
    );
  });

  it('a message is decoded or refused exactly as by the library, whatever its value', () => {
    const value = fc.letrec((tie) => ({
      any: fc.oneof(
        { maxDepth: 5 },
        fc.constantFrom(null, true, -1, 300, 2 ** 40, -(2 ** 33), 0.5, 'x', 'y'.repeat(300)),
        fc.uint8Array({ maxLength: 300 }),
        fc.array(tie('any'), { maxLength: 20 }),
        fc.dictionary(fc.string(), tie('any'), { maxKeys: 20 }),
      ),
    })).any;
    fc.assert(
      fc.property(value, (any) => {
        const bytes = pack(any);
        assert.deepEqual(outcome(unpack, bytes), outcome(plainDecode, bytes));
      }),
      { numRuns: fuzzRuns, examples: [[JSON.parse('{"__proto__": 1}')]] },
    );
  });

  it('a message is refused before allocation when it claims more elements than it contains', () => {
    // Arrays inside one another, each of which claims as many elements as there are bytes.
    const bomb = Buffer.concat(
      Array.from({ length: 20_000 }, () => Buffer.of(0xdd, 0x00, 0x01, 0x86, 0xa0)),
    );
    assert.throws(() => unpack(bomb), RangeError);
    assert.throws(() => unpack(Buffer.of(0xdd, 0xff, 0xff, 0xff, 0xff)), /4294967295 more values/);
    assert.throws(() => unpack(Buffer.alloc(100_000, 0x91)), /nested more than 32 deep/);
    assert.throws(() => unpack(Buffer.alloc(0)), RangeError);
  });

  it('a message is refused when it is mostly headers, each of which becomes an object', () => {
    const million = Buffer.of(0xdd, 0x00, 0x0f, 0x42, 0x40);
    const emptyArrays = Buffer.concat([million, Buffer.alloc(1_000_000, 0x90)]);
    assert.throws(() => unpack(emptyArrays), /more than 401002 arrays, maps and blocks/);
    const emptyBlocks = Buffer.concat([million, Buffer.alloc(2_000_000, Buffer.of(0xc4, 0))]);
    assert.throws(() => unpack(emptyBlocks), /more than 801002 arrays, maps and blocks/);
    // The smallest that a message of ours has many of: the pairs of a curriculum's state.
    const pairs = Array.from({ length: 20_000 }, (_, i) => [i % 128, 1]);
    assert.deepEqual(unpack(pack(pairs)), pairs);
  });
});
