import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { PermanentError } from '../../../shared/base/errors.js';
import {
  encodeSafetensors,
  parseSafetensors,
  toFloat32,
} from '../../../shared/model/safetensors.js';

/** A file with this header text and these data bytes. */
function file(header: string, data: Uint8Array = new Uint8Array(0)): Uint8Array {
  const text = new TextEncoder().encode(header);
  const bytes = new Uint8Array(8 + text.byteLength + data.byteLength);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(text.byteLength), true);
  bytes.set(text, 8);
  bytes.set(data, 8 + text.byteLength);
  return bytes;
}

const tensor = (dtype: string, shape: number[], offsets: [number, number]) =>
  JSON.stringify({ x: { dtype, shape, data_offsets: offsets } });

describe('a safetensors file', () => {
  it('a safetensors file returns the tensors that were written', () => {
    const written = new Map([
      ['a', { dims: [2, 3], data: Float32Array.of(1, -2, 3.5, 0, 1e-30, 5) }],
      ['b', { dims: [1], data: Float32Array.of(7) }],
    ]);
    const read = parseSafetensors(encodeSafetensors(written), 'file');
    assert.deepEqual([...read.keys()], ['a', 'b']);
    for (const [key, { dims, data }] of written) {
      assert.deepEqual(read.get(key)!.dims, dims);
      assert.deepEqual(toFloat32(read.get(key)!), data);
    }
  });

  it('a safetensors file is read from a pooled Buffer at any offset', () => {
    const bytes = encodeSafetensors(new Map([['a', { dims: [1], data: Float32Array.of(7) }]]));
    const pooled = Buffer.concat([Buffer.from('xyz'), bytes]).subarray(3);
    assert.deepEqual(toFloat32(parseSafetensors(pooled, 'file').get('a')!), Float32Array.of(7));
  });

  it('a safetensors file widens half precision exactly', () => {
    const bf16 = file(tensor('BF16', [2], [0, 4]), Uint8Array.of(0x80, 0x3f, 0x20, 0xc0));
    assert.deepEqual(toFloat32(parseSafetensors(bf16, 'file').get('x')!), Float32Array.of(1, -2.5));
    const halves = Uint8Array.of(0x00, 0x3c, 0x00, 0xc1, 0x01, 0x00, 0x00, 0x7c);
    const f16 = file(tensor('F16', [4], [0, 8]), halves);
    const expected = Float32Array.of(1, -2.5, 2 ** -24, Infinity);
    assert.deepEqual(toFloat32(parseSafetensors(f16, 'file').get('x')!), expected);
  });

  const broken: [title: string, bytes: Uint8Array, complaint: RegExp][] = [
    ['too short for a length', Uint8Array.of(1, 2, 3), /it has 3 bytes/],
    ['with a header past its end', file('{}').subarray(0, 9), /header claims 2 of 9 bytes/],
    ['with a header that is not JSON', file('{"x":'), /header is not JSON/],
    ['with a header that is a list', file('[1]'), /header/],
    ['with an unknown dtype', file(tensor('I64', [1], [0, 8])), /tensor x has dtype I64/],
    ['with data past its end', file(tensor('F32', [2], [0, 8])), /tensor x lies at 0..8 of 0/],
    ['whose offsets run backwards', file(tensor('F32', [0], [4, 0])), /tensor x lies at 4..0/],
    [
      'whose shape does not fit its bytes',
      file(tensor('F32', [3], [0, 8]), new Uint8Array(8)),
      /tensor x lies at 0..8/,
    ],
  ];
  for (const [title, bytes, complaint] of broken) {
    it(`a safetensors file is refused if it is one ${title}`, () => {
      assert.throws(
        () => parseSafetensors(bytes, 'some.safetensors'),
        (error) => {
          assert.ok(error instanceof PermanentError);
          assert.match(error.message, /some\.safetensors is not a valid safetensors file/);
          assert.match(error.message, complaint);
          return true;
        },
      );
    });
  }

  it('a safetensors file of random bytes is read or refused with a PermanentError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.string(), (bytes, header) => {
        for (const candidate of [bytes, file(header, bytes)]) {
          try {
            parseSafetensors(candidate, 'file');
          } catch (error) {
            assert.ok(error instanceof PermanentError);
          }
        }
      }),
    );
  });
});
