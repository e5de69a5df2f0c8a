import type { InferenceSession } from 'onnxruntime-node';
import { UserError } from '../errors.js';
import { createRandom } from '../random.js';
import { decodeGraph, prefillGraph } from './decode-graph.js';
import { floatOutput, floats, integers, OrtTensor, Session, type Feeds } from './graph/session.js';
import { adaptedModules, stackedLoraFeeds, type AdaptedModules } from './lora-graph.js';
import type { Adapter } from './lora.js';
import type { ModelConfig } from './model-config.js';
import { readWeights, type ModelDirectory } from './model-directory.js';
import type { Tensor } from './safetensors.js';
import { frozen } from './sequence-graph.js';

/** A policy version in a form that can sample. Its adapter must not change once it has been used. */
export interface Policy {
  readonly version: number;
  readonly adapter: Adapter;
}

export interface GroupRequest {
  readonly prompt: Int32Array; // [P]
  readonly count: number; // rollouts
  readonly temperature: number; // 0: greedy
  readonly maxTokens: number; // of each rollout, the stop token included
  readonly stopTokenIds: readonly number[];
  readonly seed: number;
}

/** One sampled answer. */
export interface SampledRollout {
  readonly tokens: Int32Array; // [T], with the stop token if it came
  readonly behaviorLogprobs: Float32Array; // [T], of the distribution each token was drawn from
  readonly versions: [version: number, count: number][]; // run-length coded, T in all
  readonly stopReason: 'stop' | 'length';
}

/** A rollout while it grows. */
interface Draft {
  readonly tokens: number[];
  readonly logprobs: number[];
  readonly versions: [version: number, count: number][];
  isStopped: boolean;
}

interface Sessions {
  readonly prefill: Session;
  readonly decode: Session;
}

/** Samples groups of rollouts from a model under LoRA policies that may change between two tokens. */
export class Decoder {
  readonly #config: ModelConfig;
  readonly #weights: ReadonlyMap<string, Tensor>;
  readonly #threads: number;
  readonly #sessions = new Map<string, Promise<Sessions>>();
  readonly #feeds = new WeakMap<Adapter, Feeds>();

  constructor(config: ModelConfig, weights: ReadonlyMap<string, Tensor>, threads: number) {
    this.#config = config;
    this.#weights = weights;
    this.#threads = threads;
  }

  static async load(directory: ModelDirectory, { threads }: { threads: number }): Promise<Decoder> {
    return new Decoder(directory.config, await readWeights(directory), threads);
  }

  /**
   * Samples one group: the prompt is read once, then all rollouts advance together, a token a step,
   * and leave as they finish.
   *
   * @param policy asked before each token, so that a newer version is adopted between two tokens;
   *   it may throw to abandon the group. All versions adapt the same modules.
   * @returns `count` rollouts; the same seed and policies give the same rollouts.
   * @throws {UserError} when prompt and answer do not fit the model's positions.
   */
  async sampleGroup(request: GroupRequest, policy: () => Policy): Promise<SampledRollout[]> {
    const { prompt, count, maxTokens, stopTokenIds } = request;
    const { maxPositions } = this.#config;
    if (prompt.length === 0 || prompt.length + maxTokens > maxPositions) {
      throw new UserError(
        `a prompt of ${prompt.length} tokens and ${maxTokens} new ones do not fit the model's ${maxPositions} positions; lower --max-tokens`,
      );
    }
    const drafts = Array.from({ length: count }, (): Draft => ({
      tokens: [],
      logprobs: [],
      versions: [],
      isStopped: false,
    }));
    const draws = new Draws(request);

    let current = policy();
    const { prefill, decode } = await this.#load(adaptedModules(current.adapter));
    let lora = this.#loraFeeds(current.adapter);
    const first = await prefill.run({
      tokens: integers(prompt, [1, prompt.length]),
      ...draws.feeds(count),
      ...lora,
    });
    const promptCache: Feeds = {
      prompt_key: first['prompt_key'] as OrtTensor,
      prompt_value: first['prompt_value'] as OrtTensor,
    };
    let cache = this.#emptyCache(count);
    let live = drafts.map((_, index) => index); // the rollouts in the batch, row by row
    let sampled = first;

    for (let length = 1; ; length++) {
      live.forEach((index, row) => {
        append(drafts[index]!, sampled, row, current.version, stopTokenIds);
      });
      const rows = live.flatMap((index, row) => (drafts[index]!.isStopped ? [] : [row]));
      live = rows.map((row) => live[row]!);
      if (live.length === 0 || length === maxTokens) break;

      const newest = policy();
      if (newest.version !== current.version) lora = this.#loraFeeds(newest.adapter);
      current = newest;
      sampled = await decode.run({
        tokens: integers(
          live.map((index) => drafts[index]!.tokens.at(-1)!),
          [live.length],
        ),
        rows: integers(rows, [rows.length]),
        position: integers([prompt.length + length - 1], [1, 1]),
        ...draws.feeds(live.length),
        ...promptCache,
        ...cache,
        ...lora,
      });
      cache = {
        past_key: sampled['key'] as OrtTensor,
        past_value: sampled['value'] as OrtTensor,
      };
    }
    return drafts.map(({ tokens, logprobs, versions, isStopped }) => ({
      tokens: Int32Array.from(tokens),
      behaviorLogprobs: Float32Array.from(logprobs),
      versions,
      stopReason: isStopped ? 'stop' : 'length',
    }));
  }

  /** The feeds of an adapter, kept for as long as the adapter lives. */
  #loraFeeds(adapter: Adapter): Feeds {
    let feeds = this.#feeds.get(adapter);
    if (feeds === undefined) this.#feeds.set(adapter, (feeds = stackedLoraFeeds(adapter)));
    return feeds;
  }

  #load(modules: AdaptedModules): Promise<Sessions> {
    const key = modules.join();
    let sessions = this.#sessions.get(key);
    if (sessions === undefined) {
      const source = frozen(this.#weights);
      sessions = Promise.all([
        Session.create(prefillGraph(this.#config, source, modules), this.#threads),
        Session.create(decodeGraph(this.#config, source, modules), this.#threads),
      ]).then(([prefill, decode]) => ({ prefill, decode }));
      this.#sessions.set(key, sessions);
    }
    return sessions;
  }

  #emptyCache(count: number): Feeds {
    const { numLayers, numKvHeads, headDim } = this.#config;
    const nothing = new Float32Array(0);
    return {
      past_key: floats(nothing, [numLayers, count, numKvHeads, headDim, 0]),
      past_value: floats(nothing, [numLayers, count, numKvHeads, 0, headDim]),
    };
  }
}

/** What chance contributes to a step: seeded numbers, and how they are to be used. */
class Draws {
  readonly #random;
  readonly #constants: Feeds;

  constructor({ seed, temperature }: GroupRequest) {
    this.#random = createRandom(`group ${seed}`);
    const isGreedy = temperature === 0;
    this.#constants = {
      temperature: floats(Float32Array.of(isGreedy ? 1 : temperature), []),
      greedy: new OrtTensor('bool', [isGreedy], []),
    };
  }

  /** Uniform numbers with float32's 24 bits: rounding must not turn one into 1. */
  feeds(rows: number): Feeds {
    const uniform = Float32Array.from(
      { length: rows },
      () => Math.floor(this.#random.next() * 2 ** 24) / 2 ** 24,
    );
    return { ...this.#constants, uniform: floats(uniform, [rows, 1]) };
  }
}

/** Adds the token that was sampled in `row` to its rollout. */
function append(
  draft: Draft,
  sampled: InferenceSession.OnnxValueMapType,
  row: number,
  version: number,
  stopTokenIds: readonly number[],
): void {
  const token = Number((sampled['token']!.data as BigInt64Array)[row]);
  draft.tokens.push(token);
  draft.logprobs.push(Math.min(0, floatOutput(sampled, 'logprob')[row]!)); // rounding may exceed 0
  const run = draft.versions.at(-1);
  if (run !== undefined && run[0] === version) run[1] += 1;
  else draft.versions.push([version, 1]);
  if (stopTokenIds.includes(token)) draft.isStopped = true;
}
