import { open } from 'node:fs/promises';
import { UserError } from '../../base/errors.js';
import type { ModelConfig } from '../model-config.js';
import { parameterShapes } from '../parameters.js';
import { encodeHeader, toBfloat16 } from '../safetensors.js';
import type { GgufFile, GgufTensor } from './gguf-file.js';

/** A weight of the model, and where its numbers are. */
interface WeightSource {
  readonly name: string; // as Hugging Face calls it
  readonly tensor: GgufTensor;
  /** The rows of one head, if the file has its rows in llama.cpp's order. */
  readonly headRows: number | undefined;
}

const layerNames: Readonly<Record<string, string>> = {
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
};
const otherNames: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

/** `model.layers.3.mlp.up_proj.weight` → `blk.3.ffn_up.weight`. */
function ggufName(name: string): string {
  const [, layer, module, kind] = /^model\.layers\.(\d+)\.(.+)\.(weight|bias)$/.exec(name) ?? [];
  return layer === undefined ? otherNames[name]! : `blk.${layer}.${layerNames[module!]!}.${kind!}`;
}

/** Tensors that are no weights: config.json says what follows from them. */
const notWeights = ['rope_freqs.weight'];

/**
 * The source of each weight, in the order of `parameterShapes`.
 *
 * @throws {UserError} if a tensor is missing, has another shape, or has no place in the model.
 */
export function weightSources(
  tensors: ReadonlyMap<string, GgufTensor>,
  config: ModelConfig,
  path: string,
): WeightSource[] {
  const left = new Set(tensors.keys());
  for (const name of notWeights) left.delete(name);
  const sources = [...parameterShapes(config)].map(([name, dims]) => {
    const tensor = tensors.get(ggufName(name));
    if (tensor === undefined) {
      throw new UserError(`${path} lacks ${ggufName(name)}; take a complete GGUF file`);
    }
    if (tensor.dims.join() !== dims.join()) {
      throw new UserError(
        `${path}: ${ggufName(name)} has shape [${tensor.dims.join()}], but the file's settings make it [${dims.join()}]`,
      );
    }
    left.delete(ggufName(name));
    const isReordered = config.family === 'llama' && /self_attn\.[qk]_proj/.test(name);
    return { name, tensor, headRows: isReordered ? config.headDim : undefined };
  });
  const [stray] = left;
  if (stray !== undefined) {
    throw new UserError(
      `${path} has ${left.size} tensors that a ${config.family} model has not, first ${stray}; ` +
        'such a model cannot be run',
    );
  }
  return sources;
}

/** Writes the weights as a safetensors file, a few megabytes at a time. */
export async function writeWeights(
  file: GgufFile,
  sources: readonly WeightSource[],
  dtype: 'BF16' | 'F32',
  path: string,
): Promise<void> {
  const entries = sources.map(({ name, tensor: { dims } }) => [name, { dtype, dims }] as const);
  await using out = await open(path, 'w');
  await out.writeFile(encodeHeader(entries, { format: 'pt' }));
  for (const source of sources) {
    for await (const values of piecesOf(file, source)) {
      const { buffer, byteOffset, byteLength } = dtype === 'BF16' ? toBfloat16(values) : values;
      await out.writeFile(new Uint8Array(buffer, byteOffset, byteLength));
    }
  }
  await out.sync();
}

const pieceElements = 2 ** 20;

/** The numbers of a weight in C order, in pieces of whole rows and heads. */
async function* piecesOf(
  file: GgufFile,
  { tensor: { format, dims, begin }, headRows }: WeightSource,
): AsyncGenerator<Float32Array> {
  const count = dims.reduce((product, dim) => product * dim, 1);
  // The elements of a bias are rows too where they have another order.
  const width = dims.length === 1 && headRows !== undefined ? 1 : dims.at(-1)!;
  const rowBytes = (width / format.elements) * format.bytes;
  const unit = headRows ?? 1;
  const rowsAtOnce = unit * Math.max(1, Math.floor(pieceElements / (width * unit)));
  for (let row = 0; row < count / width; row += rowsAtOnce) {
    const rows = Math.min(rowsAtOnce, count / width - row);
    const bytes = await file.read(begin + row * rowBytes, begin + (row + rows) * rowBytes);
    yield format.decode(headRows === undefined ? bytes : reordered(bytes, rowBytes, headRows));
  }
}

/**
 * Undoes llama.cpp's order of the rows of query and key. Its rotary embedding turns neighbors, so that it has put
 * the halves of each head into one another: a, A, b, B for a, b, A, B.
 */
function reordered(bytes: Uint8Array, rowBytes: number, headRows: number): Uint8Array {
  const result = new Uint8Array(bytes.byteLength);
  for (let row = 0; row < bytes.byteLength / rowBytes; row++) {
    const inHead = row % headRows;
    const [half, pair] = [inHead % 2, Math.floor(inHead / 2)];
    const to = row - inHead + half * (headRows / 2) + pair;
    result.set(bytes.subarray(row * rowBytes, (row + 1) * rowBytes), to * rowBytes);
  }
  return result;
}
