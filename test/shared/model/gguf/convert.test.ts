import assert from 'node:assert/strict';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { convertGguf } from '../../../../shared/model/gguf/convert.js';
import { checkModelDirectory } from '../../../../shared/model/model-directory.js';
import { readWeights } from '../../../../shared/model/model-weights.js';
import { encodeGguf, float32Tensor } from '../../../support/gguf-writer.js';
import {
  chatTemplate,
  heads,
  hidden,
  tinyGguf,
  tokens,
  type TinyGguf,
} from '../../../support/tiny-gguf.js';

describe('the conversion of a GGUF file', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-gguf-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  const convert = async ({ metadata, tensors }: TinyGguf, dtype: 'bf16' | 'fp32' = 'fp32') => {
    const path = join(folder, 'tiny.gguf');
    await writeFile(path, encodeGguf(metadata, tensors));
    return convertGguf(path, folder, dtype);
  };
  const configJson = async () =>
    JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')) as Record<string, unknown>;
  const weights = async () => readWeights(await checkModelDirectory(folder));
  const floats = ({ bytes }: { bytes: Uint8Array }) => [...new Float32Array(bytes.slice().buffer)];
  /** Expects a refusal, and no weights. */
  const refuses = async (spoil: (gguf: TinyGguf) => void, message: RegExp) => {
    const gguf = tinyGguf();
    spoil(gguf);
    await assert.rejects(convert(gguf), { name: 'UserError', message });
    assert(!(await readdir(folder)).includes('model.safetensors'));
  };

  it('a converted file is a complete model directory with its facts', async () => {
    assert.deepEqual(await convert(tinyGguf()), {
      name: 'Tiny',
      license: { id: 'apache-2.0' },
      formats: { F32: 11 },
    });
    const { config } = await checkModelDirectory(folder);
    assert.deepEqual(
      { ...config, rotary: config.rotary.theta },
      {
        family: 'llama',
        vocabSize: tokens.length,
        hiddenSize: hidden,
        intermediateSize: hidden,
        numLayers: 1,
        numHeads: heads,
        numKvHeads: 1,
        headDim: 16,
        rmsNormEps: 1e-5,
        rotary: 100_000,
        maxPositions: 64,
        hasTiedHead: true,
        hasQueryKeyNorm: false,
        biases: { queryKeyValue: false, output: false, mlp: false },
        eosTokenIds: [0],
      },
    );
    assert.equal(await readFile(join(folder, 'chat_template.jinja'), 'utf8'), chatTemplate);
  });

  it("the rows of Llama's query and key return to Hugging Face's order, the others stay", async () => {
    const gguf = tinyGguf();
    // llama.cpp's order of 16 rows of a head.
    const order = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];
    const rows = [...order, ...order.map((row) => 16 + row)];
    const fill = (of: readonly number[]) => of.flatMap((row) => Array<number>(hidden).fill(row));
    gguf.tensors['blk.0.attn_q.weight'] = float32Tensor([32, hidden], fill(rows));
    gguf.tensors['blk.0.attn_k.weight'] = float32Tensor([16, hidden], fill(order));
    gguf.tensors['blk.0.attn_v.weight'] = float32Tensor([16, hidden], fill(order));
    await convert(gguf);
    const read = await weights();
    const of = (name: string) => [...read.get(`model.layers.0.self_attn.${name}.weight`)!.data];
    assert.deepEqual(of('q_proj'), fill([...rows.keys()]));
    assert.deepEqual(of('k_proj'), fill([...order.keys()]));
    assert.deepEqual(of('v_proj'), fill(order));
  });

  it('every other weight of the three families is that of the file', async () => {
    for (const family of ['qwen2', 'qwen3', 'llama'] as const) {
      const gguf = tinyGguf(family);
      await convert(gguf);
      const read = await weights();
      const at = 'model.layers.0';
      const pairs: [string, string][] = [
        ['model.embed_tokens.weight', 'token_embd.weight'],
        ['model.norm.weight', 'output_norm.weight'],
        [`${at}.input_layernorm.weight`, 'blk.0.attn_norm.weight'],
        [`${at}.post_attention_layernorm.weight`, 'blk.0.ffn_norm.weight'],
        [`${at}.self_attn.v_proj.weight`, 'blk.0.attn_v.weight'],
        [`${at}.self_attn.o_proj.weight`, 'blk.0.attn_output.weight'],
        [`${at}.mlp.gate_proj.weight`, 'blk.0.ffn_gate.weight'],
        [`${at}.mlp.up_proj.weight`, 'blk.0.ffn_up.weight'],
        [`${at}.mlp.down_proj.weight`, 'blk.0.ffn_down.weight'],
      ];
      const [q, k] = [`${at}.self_attn.q_proj`, `${at}.self_attn.k_proj`];
      if (family !== 'llama') pairs.push([`${q}.weight`, 'blk.0.attn_q.weight']);
      if (family === 'qwen2') pairs.push([`${k}.bias`, 'blk.0.attn_k.bias']);
      if (family === 'qwen3')
        pairs.push([`${at}.self_attn.k_norm.weight`, 'blk.0.attn_k_norm.weight']);
      for (const [name, stored] of pairs) {
        assert.deepEqual(
          [...read.get(name)!.data],
          floats(gguf.tensors[stored]!),
          `${family}: ${name}`,
        );
      }
    }
  });

  it('a quantized matrix is written row by row, and bf16 is the rounded fp32', async () => {
    const gguf = tinyGguf();
    // Each row is a block of Q8_0 with the scale 0.25 and the numbers of the row.
    const blocks = Array.from({ length: hidden }, (_, row) => [
      0x00,
      0x34,
      ...Array<number>(32).fill(row),
    ]);
    gguf.tensors['blk.0.ffn_up.weight'] = {
      dims: [hidden, hidden],
      type: 8,
      bytes: Uint8Array.from(blocks.flat()),
    };
    gguf.tensors['blk.0.ffn_norm.weight'] = float32Tensor(
      [hidden],
      Array<number>(hidden).fill(1 + 2 ** -9),
    );
    for (const [dtype, norm] of [
      ['fp32', 1 + 2 ** -9],
      ['bf16', 1],
    ] as const) {
      const { formats } = await convert(gguf, dtype);
      assert.deepEqual(formats, { F32: 10, Q8_0: 1 });
      const read = await weights();
      const up = read.get('model.layers.0.mlp.up_proj.weight')!.data;
      assert.deepEqual(
        [...up],
        Array.from({ length: hidden ** 2 }, (_, i) => Math.floor(i / hidden) / 4),
      );
      assert.equal(read.get('model.layers.0.post_attention_layernorm.weight')!.data[0], norm);
      assert.equal((await configJson())['dtype'], dtype === 'bf16' ? 'bfloat16' : 'float32');
    }
  });

  it('a separate output head makes the model untied', async () => {
    const gguf = tinyGguf();
    gguf.tensors['output.weight'] = gguf.tensors['token_embd.weight']!;
    await convert(gguf);
    assert.equal((await configJson())['tie_word_embeddings'], false);
    assert((await weights()).has('lm_head.weight'));
  });

  it('the scaling of positions is read from its settings, or from the factors of Llama 3', async () => {
    const gguf = tinyGguf();
    gguf.metadata['llama.rope.scaling.type'] = 'yarn';
    gguf.metadata['llama.rope.scaling.factor'] = { float: 4 };
    gguf.metadata['llama.rope.scaling.original_context_length'] = 16;
    await convert(gguf);
    assert.deepEqual((await configJson())['rope_scaling'], {
      rope_type: 'yarn',
      factor: 4,
      original_max_position_embeddings: 16,
    });

    const llama3 = tinyGguf();
    llama3.metadata['llama.rope.freq_base'] = { float: 500_000 };
    // 8 pairs at 500000^(-i/8) radians: within 8192 positions they turn 1304, 253, 49, 9.5, 1.84, 0.36, … times.
    const blended = (waves: number) => 1 / ((1 - (waves - 1) / 3) / 8 + (waves - 1) / 3);
    const waves4 = (8_192 * 500_000 ** -0.5) / (2 * Math.PI);
    llama3.tensors['rope_freqs.weight'] = float32Tensor(
      [8],
      [1, 1, 1, 1, blended(waves4), 8, 8, 8],
    );
    await convert(llama3);
    assert.deepEqual((await configJson())['rope_scaling'], {
      rope_type: 'llama3',
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8_192,
    });
    await rm(join(folder, 'model.safetensors'));
    await refuses(({ tensors }) => {
      tensors['rope_freqs.weight'] = float32Tensor([8], [1, 1, 2, 2, 4, 8, 8, 8]);
    }, /rope_freqs\.weight has other factors than Llama 3\.1's/);
  });

  it('a model that cannot be run is refused with the key and its value', async () => {
    await refuses(({ metadata }) => {
      metadata['general.architecture'] = 'gemma3';
    }, /has the architecture gemma3; only llama, qwen2, qwen3 can be run/);
    await refuses(({ metadata }) => {
      metadata['llama.expert_count'] = 8;
      metadata['llama.attention.sliding_window'] = 16;
    }, /\n {2}- llama\.expert_count is 8: a mixture.*\n {2}- llama\.attention\.sliding_window is 16: not known/);
    await refuses(({ metadata }) => {
      delete metadata['llama.block_count'];
    }, /\n {2}- llama\.block_count is missing: /);
    await refuses(({ metadata }) => {
      metadata['llama.rope.dimension_count'] = 8;
    }, /llama\.rope\.dimension_count is 8, but heads have 16 numbers/);
  });

  it('a tensor that is missing, superfluous, of another shape or format is refused', async () => {
    await refuses(({ tensors }) => {
      delete tensors['blk.0.ffn_up.weight'];
    }, /lacks blk\.0\.ffn_up\.weight/);
    await refuses(({ tensors }) => {
      tensors['blk.0.attn_sinks.weight'] = float32Tensor([2], [0, 0]);
    }, /has 1 tensors that a llama model has not, first blk\.0\.attn_sinks\.weight/);
    await refuses(({ tensors }) => {
      tensors['output_norm.weight'] = float32Tensor([16], Array<number>(16).fill(1));
    }, /output_norm\.weight has shape \[16\], but the file's settings make it \[32\]/);
    await refuses(({ tensors }) => {
      tensors['blk.0.ffn_up.weight'] = { ...tensors['blk.0.ffn_up.weight']!, type: 12 };
    }, /blk\.0\.ffn_up\.weight has the format Q4_K; F32, F16, Q4_0, Q4_1, Q8_0, BF16 can be read, .* such as Q8_0/);
  });

  it('a file that is cut off, or is no GGUF file, is refused', async () => {
    const { metadata, tensors } = tinyGguf();
    const whole = encodeGguf(metadata, tensors);
    const path = join(folder, 'cut.gguf');
    await writeFile(path, whole.subarray(0, whole.length - 32));
    await assert.rejects(
      convertGguf(path, folder, 'fp32'),
      /is cut off: output_norm\.weight ends at byte/,
    );
    for (const length of [0, 3, 20, 500]) {
      await writeFile(path, whole.subarray(0, length));
      await assert.rejects(convertGguf(path, folder, 'fp32'), { name: 'UserError' });
    }
    await writeFile(path, 'PK\x03\x04 something else');
    await assert.rejects(convertGguf(path, folder, 'fp32'), /is not a readable GGUF file/);
  });
});
