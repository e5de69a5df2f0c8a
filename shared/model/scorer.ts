import { PermanentError } from '../base/errors.js';
import { remembered } from '../base/remembered.js';
import { batchByLength, paddedIntegers } from './packing.js';
import { Graph } from './graph/graph.js';
import { floatOutput, floats, integers, Session, type Feeds } from './graph/session.js';
import { adaptedModules, loraFeeds, type AdaptedModules } from './lora-graph.js';
import type { Adapter } from './lora.js';
import { readWeights, type ModelFolder } from './model-weights.js';
import type { ModelConfig } from './model-config.js';
import type { Tensor } from './safetensors.js';
import { isSmall } from './parameters.js';
import { sequenceLogprobs } from './sequence-graph.js';
import { frozen, type WeightSource } from './weight-source.js';

/** Tokens that are scored together. For each, there are some arrays of the size of the vocabulary. */
const maxTokensPerBatch = { small: 4096, large: 256 };

/** The k most probable next tokens at each of N positions, the most probable first. */
export interface TopTokens {
  readonly tokens: Int32Array; // [N, k]
  readonly logprobs: Float32Array; // [N, k]
}

/** Computes the logprobs of given tokens under a policy, or the tokens that it finds most probable. */
export class Scorer {
  readonly #config: ModelConfig;
  readonly #weights: ReadonlyMap<string, Tensor>;
  readonly #threads: number;
  readonly #isSmall: boolean;
  readonly #maxTokens: number;
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
    this.#maxTokens = isSmallModel ? maxTokensPerBatch.small : maxTokensPerBatch.large;
  }

  static async load(directory: ModelFolder, { threads }: { threads: number }): Promise<Scorer> {
    return new Scorer(directory.config, await readWeights(directory), threads);
  }

  /**
   * @param tokens for each sequence the input tokens [N].
   * @param targets for each sequence the tokens to score [N]: targets[i] given tokens[0…i].
   * @param adapter the policy; undefined: the base model.
   * @param temperature divides the logits.
   * @returns for each sequence the logprobs [N] of its targets.
   * @throws {PermanentError} when a sequence is longer than the model's positions.
   */
  async logprobs(
    tokens: readonly Int32Array[],
    targets: readonly Int32Array[],
    adapter: Adapter | undefined,
    temperature: number,
  ): Promise<Float32Array[]> {
    const results: Float32Array[] = new Array<Float32Array>(tokens.length);
    await this.#run('logprobs', tokens, adapter, temperature, {
      feeds: (batch, time) => ({
        targets: paddedIntegers(
          batch.map((index) => targets[index]!),
          time,
        ),
      }),
      onResult: (index, first, outputs) => {
        const all = floatOutput(outputs, 'logprobs');
        results[index] = all.slice(first, first + tokens[index]!.length);
      },
    });
    return results;
  }

  /**
   * @param tokens for each sequence the input tokens [N].
   * @param targets for each sequence the tokens to score [N]: targets[i] given tokens[0…i].
   * @param k at most the size of the vocabulary.
   * @param adapter the policy; undefined: the base model.
   * @param temperature divides the logits.
   * @returns for each sequence the logprobs [N] of its targets and, at i, the k most probable tokens given tokens[0…i].
   * @throws {PermanentError} when a sequence is longer than the model's positions.
   */
  async scores(
    tokens: readonly Int32Array[],
    targets: readonly Int32Array[],
    k: number,
    adapter: Adapter | undefined,
    temperature: number,
  ): Promise<{ readonly logprobs: Float32Array; readonly top: TopTokens }[]> {
    const results: { logprobs: Float32Array; top: TopTokens }[] = new Array<never>(tokens.length);
    await this.#run('scores', tokens, adapter, temperature, {
      feeds: (batch, time) => ({
        targets: paddedIntegers(
          batch.map((index) => targets[index]!),
          time,
        ),
        k: integers([k], [1]),
      }),
      onResult: (index, first, outputs) => {
        const end = first + tokens[index]!.length;
        const ids = outputs['top_tokens']!.data as BigInt64Array;
        results[index] = {
          logprobs: floatOutput(outputs, 'logprobs').slice(first, end),
          top: {
            tokens: Int32Array.from(ids.subarray(first * k, end * k), Number),
            logprobs: floatOutput(outputs, 'top_logprobs').slice(first * k, end * k),
          },
        };
      },
    });
    return results;
  }

  /**
   * Runs a graph over padded batches.
   *
   * @param each.feeds its own inputs, for sequences padded to `time`.
   * @param each.onResult called for each sequence with its first row in the outputs.
   */
  async #run(
    name: keyof typeof outputsOf,
    tokens: readonly Int32Array[],
    adapter: Adapter | undefined,
    temperature: number,
    each: {
      feeds: (batch: readonly number[], time: number) => Feeds;
      onResult: (index: number, first: number, outputs: Outputs) => void;
    },
  ): Promise<void> {
    const { maxPositions } = this.#config;
    const tooLong = tokens.findIndex(({ length }) => length > maxPositions);
    if (tooLong !== -1) {
      throw new PermanentError(
        `sequence ${tooLong} has ${tokens[tooLong]!.length} tokens; the model takes ${maxPositions}`,
      );
    }
    const session = await this.#session(name, adapter);
    const lengths = tokens.map(({ length }) => length);
    for (const batch of batchByLength(lengths, this.#maxTokens)) {
      const time = Math.max(...batch.map((index) => lengths[index]!));
      const outputs = await session.run({
        tokens: paddedIntegers(
          batch.map((index) => tokens[index]!),
          time,
        ),
        temperature: floats(Float32Array.of(temperature), []),
        ...each.feeds(batch, time),
        ...(adapter === undefined ? {} : loraFeeds(adapter)),
      });
      batch.forEach((index, row) => {
        each.onResult(index, row * time, outputs);
      });
    }
  }

  #session(name: keyof typeof outputsOf, adapter: Adapter | undefined): Promise<Session> {
    const modules = adapter === undefined ? [] : adaptedModules(adapter);
    const key = `${name} ${modules.join()}`;
    return remembered(this.#sessions, key, () => {
      const graph = new Graph();
      outputsOf[name](graph, this.#config, frozen(this.#weights), modules);
      return Session.create(graph, this.#threads, {
        sharesWeights: !this.#isSmall,
        keepsFreed: this.#isSmall,
      });
    });
  }
}

type Outputs = Awaited<ReturnType<Session['run']>>;

/** What each kind of score adds to its graph, by name. */
const outputsOf = {
  logprobs(graph: Graph, ...model: ModelInputs): void {
    graph.output('logprobs', sequenceLogprobs(graph, ...model).logprobs);
  },
  scores(graph: Graph, ...model: ModelInputs): void {
    const { logprobs, all } = sequenceLogprobs(graph, ...model);
    const dims = ['rows', 'k'];
    const [best, tokens] = graph.applyMany(
      'TopK',
      [all, graph.input('k', 'int64', [1])],
      [{ dims }, { dims, type: 'int64' }],
    );
    graph.output('logprobs', logprobs);
    graph.output('top_logprobs', best!);
    graph.output('top_tokens', tokens!);
  },
};

type ModelInputs = [config: ModelConfig, source: WeightSource, modules: AdaptedModules];
