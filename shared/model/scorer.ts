import { PermanentError } from '../base/errors.js';
import { batchByLength, paddedIntegers } from './packing.js';
import { Graph } from './graph/graph.js';
import { floatOutput, floats, Session } from './graph/session.js';
import { adaptedModules, loraFeeds } from './lora-graph.js';
import type { Adapter } from './lora.js';
import { readWeights, type ModelFolder } from './model-weights.js';
import type { ModelConfig } from './model-config.js';
import type { Tensor } from './safetensors.js';
import { frozen, sequenceLogprobs } from './sequence-graph.js';

const maxTokensPerBatch = 4096;

/** Computes the logprobs of given tokens under a policy. */
export class Scorer {
  readonly #config: ModelConfig;
  readonly #weights: ReadonlyMap<string, Tensor>;
  readonly #threads: number;
  readonly #sessions = new Map<string, Promise<Session>>();

  constructor(config: ModelConfig, weights: ReadonlyMap<string, Tensor>, threads: number) {
    this.#config = config;
    this.#weights = weights;
    this.#threads = threads;
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
    const { maxPositions } = this.#config;
    const tooLong = tokens.findIndex(({ length }) => length > maxPositions);
    if (tooLong !== -1) {
      throw new PermanentError(
        `sequence ${tooLong} has ${tokens[tooLong]!.length} tokens; the model takes ${maxPositions}`,
      );
    }
    const session = await this.#session(adapter);
    const results: Float32Array[] = new Array<Float32Array>(tokens.length);
    const lengths = tokens.map(({ length }) => length);
    for (const batch of batchByLength(lengths, maxTokensPerBatch)) {
      const time = Math.max(...batch.map((index) => lengths[index]!));
      const pick = (arrays: readonly Int32Array[]) => batch.map((index) => arrays[index]!);
      const outputs = await session.run({
        tokens: paddedIntegers(pick(tokens), time),
        targets: paddedIntegers(pick(targets), time),
        temperature: floats(Float32Array.of(temperature), []),
        ...(adapter === undefined ? {} : loraFeeds(adapter)),
      });
      const logprobs = floatOutput(outputs, 'logprobs');
      batch.forEach((index, row) => {
        results[index] = logprobs.slice(row * time, row * time + lengths[index]!);
      });
    }
    return results;
  }

  #session(adapter: Adapter | undefined): Promise<Session> {
    const modules = adapter === undefined ? [] : adaptedModules(adapter);
    const key = modules.join();
    let session = this.#sessions.get(key);
    if (session === undefined) {
      const graph = new Graph();
      const { logprobs } = sequenceLogprobs(graph, this.#config, frozen(this.#weights), modules);
      graph.output('logprobs', logprobs);
      session = Session.create(graph, this.#threads);
      this.#sessions.set(key, session);
    }
    return session;
  }
}
