import { PermanentError } from '../base/errors.js';
import { remembered } from '../base/remembered.js';
import { checkData, checkInputs, type Datum } from '../rl/datum.js';
import { losses, lossSettings, type LossName } from '../rl/losses.js';
import type { Gradients } from './adamw.js';
import {
  batchByLength,
  packedBias,
  packedPositions,
  type PackedRow,
  packSharedPrefixes,
  packValues,
  unpackValues,
} from './packing.js';
import { differentiate } from './graph/differentiate.js';
import { Graph } from './graph/graph.js';
import {
  floatOutput,
  floats,
  integers,
  release,
  Session,
  type Feeds,
  type OrtTensor,
} from './graph/session.js';
import { loss } from './loss-graph.js';
import { adaptedModules, loraFeeds, type AdaptedModules } from './lora-graph.js';
import type { Adapter } from './lora.js';
import type { ModelConfig } from './model-config.js';
import { readWeights, type ModelFolder } from './model-weights.js';
import type { Tensor } from './safetensors.js';
import { Scorer } from './scorer.js';
import { isSmall } from './parameters.js';
import { sequenceLogprobs } from './sequence-graph.js';
import { frozen } from './weight-source.js';

export interface TrainingResult {
  readonly logprobs: Float32Array[]; // for each datum [N], before any update
  readonly lossSum: number;
}

/** The tokens that are computed together, and those of a row, whose sequences share the beginning of their prompts. */
interface BatchSize {
  readonly tokens: number;
  readonly rowTokens: number;
}

// Measured on one thread with the embedded model: activations of a batch of this size stay in the cache,
// and longer rows cost more in attention than they save by sharing a prompt.
const smallModel: BatchSize = { tokens: 512, rowTokens: 96 };
// Activations take some 4 MB a token with 135 million weights, and a shared prompt saves most of the arithmetic.
const largeModel: BatchSize = { tokens: 256, rowTokens: 256 };

/** Computes losses of LoRA policies and their exact gradients; `AdamW` applies them. */
export class Trainer {
  readonly #config: ModelConfig;
  readonly #weights: ReadonlyMap<string, Tensor>;
  readonly #threads: number;
  readonly #isSmall: boolean;
  readonly scorer: Scorer; // with the same weights
  readonly #sessions = new Map<string, Promise<Session>>();

  /** @param isSmallModel whether each session has a copy of the weights, arranged for it. */
  constructor(
    config: ModelConfig,
    weights: ReadonlyMap<string, Tensor>,
    threads: number,
    isSmallModel = isSmall(config),
  ) {
    this.#config = config;
    this.#weights = weights;
    this.#threads = threads;
    this.#isSmall = isSmallModel;
    this.scorer = new Scorer(config, weights, threads, isSmallModel);
  }

  static async load(directory: ModelFolder, { threads }: { threads: number }): Promise<Trainer> {
    return new Trainer(directory.config, await readWeights(directory), threads);
  }

  /**
   * @param config the loss's settings, and `temperature` (default 1), which divides the logits.
   * @param gradients dLoss/dAdapter is added to these.
   * @throws {PermanentError} when a datum does not fit the loss or the model.
   */
  async forwardBackward(
    adapter: Adapter,
    data: readonly Datum[],
    name: LossName,
    config: Readonly<Record<string, number>>,
    gradients: Gradients,
  ): Promise<TrainingResult> {
    checkData(data);
    checkInputs(data, name);
    checkFits(data, name, this.#config);
    const session = await this.#session(name, adaptedModules(adapter));
    const constants: Feeds = { temperature: scalar(config['temperature'] ?? 1) };
    for (const [key, value] of Object.entries(lossSettings(name, config, 'server'))) {
      constants[key] = scalar(value);
    }
    Object.assign(constants, loraFeeds(adapter));

    const size = this.#isSmall ? smallModel : largeModel;
    const logprobs: Float32Array[] = new Array<Float32Array>(data.length);
    let lossSum = 0;
    const rows = packSharedPrefixes(
      data.map((datum) => ({ ...datum, idle: idleLength(datum, name) })),
      size.rowTokens,
    );
    for (const batch of batchByLength(
      rows.map(({ length }) => length),
      size.tokens,
    )) {
      const packed = batch.map((index) => rows[index]!);
      const rowLength = Math.max(...packed.map(({ length }) => length));
      const feeds = packedFeeds(packed, rowLength, data, name);
      const outputs = await session.run({ ...constants, ...feeds });
      lossSum += floatOutput(outputs, 'loss')[0]!;
      const found = floatOutput(outputs, 'current_logprobs');
      packed.forEach((row, i) => {
        const values = found.subarray(i * rowLength, (i + 1) * rowLength);
        for (const segment of row.segments) {
          logprobs[segment.sequence] = unpackValues(row, segment, values);
        }
      });
      for (const [key, { data: parameter }] of adapter.tensors) {
        accumulate(gradients, key, parameter.length, floatOutput(outputs, `d ${key}`));
      }
      release([...Object.values(feeds), ...Object.values<OrtTensor>(outputs)]);
    }
    return { logprobs, lossSum };
  }

  /** Computes only the logprobs of the targets. */
  forward(adapter: Adapter, data: readonly Datum[], temperature: number): Promise<Float32Array[]> {
    return this.scorer.logprobs(
      data.map(({ tokens }) => tokens),
      data.map(({ targetTokens }) => targetTokens),
      adapter,
      temperature,
    );
  }

  #session(name: LossName, modules: AdaptedModules): Promise<Session> {
    const key = `${name} ${modules.join()}`;
    return remembered(this.#sessions, key, () =>
      Session.create(this.#graph(name, modules), this.#threads, {
        sharesWeights: !this.#isSmall,
        keepsFreed: this.#isSmall,
      }),
    );
  }

  #graph(name: LossName, modules: AdaptedModules): Graph {
    const graph = new Graph();
    const { logprobs, lora } = sequenceLogprobs(
      graph,
      this.#config,
      frozen(this.#weights),
      modules,
      'packed',
    );
    const total = loss(graph, name, logprobs);
    const parameters = [...lora!.matrices];
    const derivatives = differentiate(
      graph,
      total,
      parameters.map(([, value]) => value),
    );
    graph.output('loss', total);
    graph.output('current_logprobs', logprobs);
    parameters.forEach(([key], i) => {
      graph.output(`d ${key}`, derivatives[i]!);
    });
    return graph;
  }
}

/** @throws {PermanentError} naming a datum with too many tokens or tokens outside the vocabulary. */
function checkFits(
  data: readonly Datum[],
  name: LossName,
  { vocabSize, maxPositions }: ModelConfig,
): void {
  data.forEach(({ tokens, targetTokens }, index) => {
    const refuse = (why: string): never => {
      throw new PermanentError(`${name}: data[${index}] ${why}`);
    };
    const { length } = tokens;
    if (length > maxPositions) refuse(`has ${length} tokens; the model takes ${maxPositions}`);
    const unknown = [...tokens, ...targetTokens].find((token) => token >= vocabSize);
    if (unknown !== undefined) refuse(`has token ${unknown} of a vocabulary of ${vocabSize}`);
  });
}

/** The number of positions from the start that do not contribute to the loss. */
function idleLength({ inputs }: Datum, name: LossName): number {
  const { scaledBy } = losses[name];
  if (scaledBy === undefined) return 0;
  const scale = inputs[scaledBy]!;
  const first = scale.findIndex((factor) => factor !== 0);
  return first === -1 ? scale.length - 1 : first; // a segment keeps at least one own token
}

/** The tensors of one batch of packed rows, padded to `rowLength`. */
function packedFeeds(
  rows: readonly PackedRow[],
  rowLength: number, // padded
  data: readonly Datum[],
  name: LossName,
): Feeds {
  const { inputs, scaledBy } = losses[name];
  const dims = [rows.length, rowLength];
  const integerFeed = (of: (datum: Datum) => Int32Array) => {
    const columns = data.map(of);
    const padded = new Int32Array(rows.length * rowLength);
    rows.forEach((row, i) =>
      packValues(row, columns, padded.subarray(i * rowLength, (i + 1) * rowLength)),
    );
    return integers(padded, dims);
  };
  const floatFeed = (of: (datum: Datum) => Float32Array) => {
    const columns = data.map(of);
    const padded = new Float32Array(rows.length * rowLength);
    rows.forEach((row, i) =>
      packValues(row, columns, padded.subarray(i * rowLength, (i + 1) * rowLength)),
    );
    return floats(padded, dims);
  };
  const positions = new Int32Array(rows.length * rowLength);
  const mask = new Float32Array(rows.length * rowLength);
  const bias = new Float32Array(rows.length * rowLength * rowLength);
  rows.forEach((row, i) => {
    positions.set(packedPositions(row, rowLength), i * rowLength);
    mask.fill(1, i * rowLength, i * rowLength + row.length);
    packedBias(
      row,
      rowLength,
      bias.subarray(i * rowLength * rowLength, (i + 1) * rowLength * rowLength),
    );
  });
  return {
    tokens: integerFeed(({ tokens }) => tokens),
    targets: integerFeed(({ targetTokens }) => targetTokens),
    positions: integers(positions, dims),
    mask: floats(mask, dims),
    attention_bias: floats(bias, [rows.length, 1, 1, rowLength, rowLength]),
    ...Object.fromEntries(
      inputs.map((key) => [
        key,
        floatFeed(({ inputs }) =>
          key === 'logprobs' && scaledBy !== undefined
            ? zeroWhere(inputs[scaledBy]!, inputs[key]!)
            : inputs[key]!,
        ),
      ]),
    ),
  };
}

/** Where the loss is scaled by 0, a ratio of ∞ would make it NaN; the logprob there does not matter. */
function zeroWhere(scale: Float32Array, logprobs: Float32Array): Float32Array {
  return logprobs.map((logprob, i) => (scale[i] === 0 ? 0 : logprob));
}

/** Adds one batch's gradient to the sum. */
export function accumulate(
  gradients: Gradients,
  key: string,
  length: number,
  part: Float32Array,
): void {
  let sum = gradients.get(key);
  if (sum === undefined) gradients.set(key, (sum = new Float32Array(length)));
  for (let i = 0; i < length; i++) sum[i]! += part[i]!;
}

function scalar(value: number): Feeds[string] {
  return floats(Float32Array.of(value), []);
}
