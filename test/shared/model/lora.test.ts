import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  checkAdapter,
  createAdapter,
  decodeAdapter,
  encodeAdapter,
  noAdapter,
  requireFinite,
  WeightsNotFinite,
  type Adapter,
} from '../../../shared/model/lora.js';
import { parseModelConfig } from '../../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../../shared/model/model-writer.js';
import { encodeSafetensors, parseSafetensors } from '../../../shared/model/safetensors.js';
import { tinySizes, warmAdapter } from '../../support/tiny-model.js';

const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config.json');
const options = { rank: 4, alpha: 8, seed: 1, attn: true, mlp: true };

describe('a fresh adapter', () => {
  it('a fresh adapter does not change the model: every B is zero and no A is', () => {
    for (const [key, { data }] of createAdapter(config, options).tensors) {
      assert.equal(
        data.every((value) => value === 0),
        key.endsWith('lora_B'),
        key,
      );
    }
  });

  it('a fresh adapter has every A uniform within 1 / √width, as in PEFT', () => {
    for (const [key, { dims, data }] of createAdapter(config, { ...options, rank: 32 }).tensors) {
      if (key.endsWith('lora_B')) continue;
      const scaled = Array.from(data, (value) => value * Math.sqrt(dims[1]!)).sort((a, b) => a - b);
      const gap = scaled.map((value, i) => Math.abs((value + 1) / 2 - (i + 0.5) / scaled.length));
      assert(Math.max(...gap) < 0.1, `${key}: ${Math.max(...gap)}`); // Kolmogorov-Smirnov distance
    }
  });

  it('a fresh adapter is the same for the same seed and differs for another', () => {
    assert.deepEqual(createAdapter(config, options), createAdapter(config, options));
    assert.notDeepEqual(
      createAdapter(config, { ...options, seed: 2 }),
      createAdapter(config, options),
    );
  });

  it('a fresh adapter adapts attention, the MLP, or both, in every layer', () => {
    const modules = (attn: boolean, mlp: boolean) =>
      createAdapter(config, { ...options, attn, mlp }).tensors.size;
    assert.equal(modules(true, false), 2 * 4 * 2);
    assert.equal(modules(false, true), 2 * 3 * 2);
    assert.equal(modules(true, true), 2 * 7 * 2);
    assert.throws(() => modules(false, false), /train_attn or train_mlp/);
  });
});

describe('an adapter on disk', () => {
  const adapter = warmAdapter(config, 3);
  const { safetensors, config: text } = encodeAdapter(adapter, 'base');

  it('an adapter on disk has the names and shapes of PEFT', () => {
    const entries = parseSafetensors(safetensors, 'file');
    const a = entries.get('base_model.model.model.layers.1.mlp.down_proj.lora_A.weight');
    assert.deepEqual(a?.dims, [3, 24]);
    const peft = JSON.parse(text) as Record<string, unknown>;
    assert.equal(peft['r'], 3);
    assert.equal(peft['lora_alpha'], 6);
    assert.deepEqual(peft['target_modules'], [
      'q_proj',
      'k_proj',
      'v_proj',
      'o_proj',
      'gate_proj',
      'up_proj',
      'down_proj',
    ]);
  });

  it('an adapter on disk is read bit for bit as it was written', () => {
    assert.deepEqual(decodeAdapter(safetensors, { rank: 3, alpha: 6 }), adapter);
  });

  it('an adapter on disk is read in layer order, although PEFT writes layer 10 before layer 2', () => {
    const many = warmAdapter({ ...config, numLayers: 12 }, 1);
    const names = [...parseSafetensors(encodeAdapter(many).safetensors, 'file').keys()];
    const alphabetic = new Map(
      names
        .sort()
        .map((name) => [
          name,
          many.tensors.get(name.slice('base_model.model.model.'.length, -'.weight'.length))!,
        ]),
    );
    const read = decodeAdapter(encodeSafetensors(alphabetic), { rank: 3, alpha: 6 });
    const layers = [...read.tensors.keys()].map((key) => Number(key.split('.')[1]));
    assert.deepEqual(
      layers,
      layers.toSorted((a, b) => a - b),
    );
    assert.deepEqual(read, many);
  });

  it('an adapter is refused if it was created for another model, or not for every layer', () => {
    const checked = (tensors: Adapter['tensors']) => () => {
      checkAdapter({ ...adapter, tensors }, config);
    };
    checked(adapter.tensors)();
    checked(new Map())();
    const changed = (key: string, dims: number[]) =>
      new Map(adapter.tensors).set(key, { dims, data: new Float32Array(3) });
    assert.throws(
      checked(changed('layers.2.mlp.up_proj.lora_A', [3, 16])),
      /layers\.2\.mlp\.up_proj\.lora_A is \[3,16\], but absent in this model/,
    );
    assert.throws(
      checked(changed('layers.1.mlp.up_proj.lora_A', [3, 8])),
      /layers\.1\.mlp\.up_proj\.lora_A is \[3,8\], but \[3,16\] in this model/,
    );
    const partial = [...adapter.tensors].filter(([key]) => !key.startsWith('layers.1.mlp.up_proj'));
    assert.throws(checked(new Map(partial)), /lacks layers\.1\.mlp\.up_proj\.lora_A: .* in all/);
  });

  it('an adapter is refused with another rank, a foreign tensor, a missing partner, or no tensor', () => {
    const rename = (name: string) =>
      encodeSafetensors(new Map([[name, { dims: [3, 16], data: new Float32Array(48) }]]));
    const decode =
      (bytes: Uint8Array, rank = 3) =>
      () =>
        decodeAdapter(bytes, { rank, alpha: 6 });
    assert.throws(decode(safetensors, 5), /not rank 5/);
    assert.throws(decode(rename('lm_head.weight')), /lm_head\.weight, which is not LoRA/);
    const lone = 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight';
    assert.throws(decode(rename(lone)), /lacks layers\.0\.self_attn\.q_proj\.lora_B/);
    assert.throws(decode(encodeAdapter(noAdapter).safetensors), /is empty/);
  });
});

describe('the check that an adapter is finite', () => {
  /** A safetensors file of one tensor [2, 3] of 16-bit words. */
  const halves = (dtype: 'F16' | 'BF16', words: readonly number[], metadata = '') => {
    const entry = { dtype, shape: [2, 3], data_offsets: [0, 12] };
    const header = new TextEncoder().encode(
      JSON.stringify({ t: entry, __metadata__: { metadata } }),
    );
    const file = new Uint8Array(8 + header.byteLength + 12);
    const view = new DataView(file.buffer);
    view.setBigUint64(0, BigInt(header.byteLength), true);
    file.set(header, 8);
    words.forEach((word, i) => {
      view.setUint16(8 + header.byteLength + 2 * i, word, true);
    });
    return file;
  };
  const cases: [what: string, file: Uint8Array, complaint: RegExp | undefined][] = [
    ['float16 up to its largest', halves('F16', [0, 0x8000, 0x7bff, 0xfbff, 1, 0x3c00]), undefined],
    [
      'float16 with infinity',
      halves('F16', [0, 0, 0, 0x7c00, 0, 0]),
      /element 3 of \[2,3\] is Infinity/,
    ],
    ['float16 with -infinity', halves('F16', [0xfc00, 0, 0, 0, 0, 0]), /element 0 .* is -Infinity/],
    ['float16 with NaN', halves('F16', [0, 0, 0, 0, 0, 0x7e00]), /element 5 .* is NaN/],
    ['bfloat16 up to its largest', halves('BF16', [0, 0x8000, 0x7f7f, 0xff7f, 1, 1]), undefined],
    ['bfloat16 with infinity', halves('BF16', [0, 0x7f80, 0, 0, 0, 0]), /element 1 .* is Infinity/],
    ['bfloat16 with NaN', halves('BF16', [0, 0, 0xffc1, 0, 0, 0]), /element 2 .* is NaN/],
    [
      'float16 at an odd place of the file',
      halves('F16', [0, 0, 0, 0x7c00, 0, 0], '.'),
      /element 3 .* is Infinity/,
    ],
  ];
  for (const [what, file, complaint] of cases) {
    it(`the check ${complaint === undefined ? 'accepts' : 'refuses'} ${what}`, async () => {
      if (complaint === undefined) return requireFinite(file);
      await assert.rejects(requireFinite(file), (error) => {
        assert(error instanceof WeightsNotFinite);
        assert.match(error.message, complaint);
        return true;
      });
    });
  }

  it('the check refuses NaN in float32 and names the matrix', async () => {
    const adapter = warmAdapter(config, 3);
    await requireFinite(encodeAdapter(adapter).safetensors);
    adapter.tensors.get('layers.1.mlp.down_proj.lora_B')!.data[7] = NaN;
    await assert.rejects(
      requireFinite(encodeAdapter(adapter).safetensors),
      /layers\.1\.mlp\.down_proj\.lora_B\.weight is not finite: element 7 of .* is NaN/,
    );
  });

  it('the check refuses a truncated file as malformed', async () => {
    const { safetensors } = encodeAdapter(warmAdapter(config, 3));
    await assert.rejects(
      requireFinite(safetensors.subarray(0, -1)),
      /not a valid safetensors file/,
    );
  });
});
