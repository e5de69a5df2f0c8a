import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { PermanentError } from '../../../shared/base/errors.js';
import {
  adaptedModules,
  decodeAdapter,
  encodeAdapter,
  requireFinite,
  roundToBfloat16,
  WeightsNotFinite,
  weightFormat,
} from '../../../shared/model/lora.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../../shared/model/model-writer.js';
import { parseSafetensors, toBfloat16, toFloat32 } from '../../../shared/model/safetensors.js';
import { tinySizes, warmAdapter } from '../../support/tiny-model.js';

const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');

/** What torch 2.13 makes of float32 words by `.to(torch.bfloat16)`. */
const byTorch: readonly (readonly [word: number, rounded: number])[] = [
  ...([
    [0x00000000, 0x0000],
    [0x80000000, 0x8000],
    [0x00000001, 0x0000],
    [0x00007fff, 0x0000],
    [0x00008000, 0x0000],
    [0x00008001, 0x0001],
    [0x00018000, 0x0002],
    [0x00017fff, 0x0001],
    [0x00027fff, 0x0002],
    [0x007fffff, 0x0080],
    [0x00800000, 0x0080],
    [0x3f800000, 0x3f80],
    [0x3f807fff, 0x3f80],
    [0x3f808000, 0x3f80],
    [0x3f808001, 0x3f81],
    [0x3f817fff, 0x3f81],
    [0x3f818000, 0x3f82],
    [0x3f818001, 0x3f82],
    [0xbf808000, 0xbf80],
    [0xbf818000, 0xbf82],
    [0x3effffff, 0x3f00],
    [0x7f7f0000, 0x7f7f],
    [0x7f7f7fff, 0x7f7f],
    [0x7f7f8000, 0x7f80],
    [0x7f7fffff, 0x7f80],
    [0xff7fffff, 0xff80],
    [0x7f800000, 0x7f80],
    [0xff800000, 0xff80],
    [0x33333333, 0x3333],
    [0x40490fdb, 0x4049],
  ] as const),
];

const floatOf = (word: number): number => new Float32Array(Uint32Array.of(word).buffer)[0]!;

describe('an adapter rounded to bfloat16', () => {
  it('each number is rounded as torch rounds it, to the nearest and from the middle to the even one', () => {
    for (const [word, rounded] of byTorch) {
      const [found] = toBfloat16(Float32Array.of(floatOf(word)));
      assert.equal(found, rounded, word.toString(16));
    }
    assert.deepEqual([...toBfloat16(Float32Array.of(NaN))], [0x7fc0]);
  });

  it('no other bfloat16 number is nearer to the weight', () => {
    const value = (half: number) => floatOf(half * 2 ** 16);
    fc.assert(
      fc.property(
        fc.float({
          noNaN: true,
          noDefaultInfinity: true,
          max: Math.fround(3e38),
          min: Math.fround(-3e38),
        }),
        (weight) => {
          const [half] = toBfloat16(Float32Array.of(weight));
          const distance = Math.abs(value(half!) - weight);
          for (const other of [half! - 1, half! + 1]) {
            const further = Math.abs(value(other) - weight);
            if (Number.isNaN(further)) continue;
            assert(distance < further || (distance === further && half! % 2 === 0) || weight === 0);
          }
        },
      ),
      { numRuns: 2_000 },
    );
  });

  it('the file has the same tensors in the same order with half the bytes, and is read like any other', async () => {
    const adapter = warmAdapter(config, 4);
    const { safetensors } = encodeAdapter(adapter);
    const rounded = await roundToBfloat16(safetensors);
    const [before, after] = [safetensors, rounded].map((file) => parseSafetensors(file, 'x'));
    assert.deepEqual([...after!.keys()], [...before!.keys()]);
    const weights = (file: typeof before) =>
      [...file!.values()].reduce((sum, { bytes }) => sum + bytes.byteLength, 0);
    assert.equal(2 * weights(after), weights(before));
    assert.deepEqual([weightFormat(safetensors), weightFormat(rounded)], ['F32', 'BF16']);
    await requireFinite(rounded);
    assert.deepEqual(
      adaptedModules(rounded, adapter.rank),
      adaptedModules(safetensors, adapter.rank),
    );
    const decoded = decodeAdapter(rounded, adapter);
    for (const [key, { dims, data }] of decoded.tensors) {
      const original = adapter.tensors.get(key)!;
      assert.deepEqual(dims, original.dims);
      const bytes = new Uint8Array(toBfloat16(original.data).buffer);
      assert.deepEqual(data, toFloat32({ dtype: 'BF16', dims, bytes }));
    }
    assert.equal(await roundToBfloat16(rounded), rounded); // nothing is left to round
  });

  it('a weight that is too large for bfloat16 becomes infinite, and such an adapter is refused', async () => {
    const adapter = warmAdapter(config, 4);
    [...adapter.tensors.values()][0]!.data[0] = 3.4e38;
    const { safetensors } = encodeAdapter(adapter);
    await requireFinite(safetensors);
    await assert.rejects(requireFinite(await roundToBfloat16(safetensors)), WeightsNotFinite);
    await assert.rejects(roundToBfloat16(safetensors.subarray(0, 50)), PermanentError);
  });
});
