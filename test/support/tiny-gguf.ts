import { createRandom } from '../../shared/base/random.js';
import { float32Tensor, type GgufValue, type StoredTensor } from './gguf-writer.js';

export const hidden = 32; // one block of the quantized formats
export const heads = 2;
const kvHeads = 1;
const headDim = hidden / heads;

/** Characters of the doctor's sample and of a few words; Ġ is byte-level BPE's space. */
const characters = Array.from('0123456789Ġ=:*+-ab');
export const tokens = ['<|end|>', '<tool>', ...characters, 'ab', 'Ġa', '12', '[PAD22]'];
const tokenTypes = tokens.map((token) =>
  token === '<|end|>' ? 3 : token === '<tool>' ? 4 : token.startsWith('[PAD') ? 5 : 1,
);
export const chatTemplate =
  "{% for m in messages %}{{ m['role'] + ':' + m['content'] }}{% endfor %}";

export interface TinyGguf {
  metadata: Record<string, GgufValue>;
  tensors: Record<string, StoredTensor>;
}

/** A complete model of one layer, to be spoilt by a test. Its weights are random, float32. */
export function tinyGguf(architecture: 'llama' | 'qwen2' | 'qwen3' = 'llama'): TinyGguf {
  const random = createRandom('gguf');
  const tensor = (...dims: number[]) => {
    const length = dims.reduce((product, dim) => product * dim, 1);
    return float32Tensor(
      dims,
      Array.from({ length }, () => random.next() - 0.5),
    );
  };
  const kvWidth = kvHeads * headDim;
  return {
    metadata: {
      'general.architecture': architecture,
      'general.name': 'Tiny',
      'general.license': 'apache-2.0',
      [`${architecture}.context_length`]: 64,
      [`${architecture}.embedding_length`]: hidden,
      [`${architecture}.block_count`]: 1,
      [`${architecture}.feed_forward_length`]: hidden,
      [`${architecture}.attention.head_count`]: heads,
      [`${architecture}.attention.head_count_kv`]: kvHeads,
      ...(architecture === 'qwen3' && { 'qwen3.attention.key_length': headDim }),
      [`${architecture}.attention.layer_norm_rms_epsilon`]: { float: 1e-5 },
      [`${architecture}.rope.freq_base`]: { float: 100_000 },
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'smollm',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.token_type': tokenTypes,
      'tokenizer.ggml.merges': ['a b', 'Ġ a', '1 2'],
      'tokenizer.ggml.eos_token_id': 0,
      'tokenizer.chat_template': chatTemplate,
    },
    tensors: {
      'token_embd.weight': tensor(tokens.length, hidden),
      'blk.0.attn_norm.weight': tensor(hidden),
      'blk.0.attn_q.weight': tensor(hidden, hidden),
      'blk.0.attn_k.weight': tensor(kvWidth, hidden),
      'blk.0.attn_v.weight': tensor(kvWidth, hidden),
      'blk.0.attn_output.weight': tensor(hidden, hidden),
      'blk.0.ffn_norm.weight': tensor(hidden),
      'blk.0.ffn_gate.weight': tensor(hidden, hidden),
      'blk.0.ffn_up.weight': tensor(hidden, hidden),
      'blk.0.ffn_down.weight': tensor(hidden, hidden),
      'output_norm.weight': tensor(hidden),
      ...(architecture === 'qwen2' && {
        'blk.0.attn_q.bias': tensor(hidden),
        'blk.0.attn_k.bias': tensor(kvWidth),
        'blk.0.attn_v.bias': tensor(kvWidth),
      }),
      ...(architecture === 'qwen3' && {
        'blk.0.attn_q_norm.weight': tensor(headDim),
        'blk.0.attn_k_norm.weight': tensor(headDim),
      }),
    },
  };
}
