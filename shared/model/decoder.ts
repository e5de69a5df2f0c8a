import type { InferenceSession } from 'onnxruntime-node';
import { z } from 'zod';
import { UserError } from '../base/errors.js';
import { decodeGraph, prefillGraph } from './decode-graph.js';
import { Grid, joinedTensor, paddingBias, textFeeds } from './decode-grid.js';
import { floats, Session, type Feeds, type OrtTensor } from './graph/session.js';
import { adaptedModules, stackedLoraFeeds, type AdaptedModules } from './lora-graph.js';
import type { Adapter } from './lora.js';
import type { ModelConfig } from './model-config.js';
import { readWeights, type ModelFolder } from './model-weights.js';
import { GroupDraft, type GroupRequest, type SampledRollout } from './rollout-draft.js';
import type { Tensor } from './safetensors.js';
import { frozen } from './sequence-graph.js';
import { StopStringMatcher } from './stop-strings.js';
import type { Tokenizer } from './tokenizer.js';

/** A policy version to sample with. Its adapter must not change after its first use. */
export interface Policy {
  readonly version: number;
  readonly adapter: Adapter;
}

/**
 * What a rollout continues with when a newer version is adopted between two of its tokens: `keep` the cache that
 * older weights wrote, so that its next tokens come from no single version, or `reprefill`, a new cache of the
 * prompt and the tokens so far, which makes each token one of its version at the cost of reading them again.
 */
export const OnAdoption = z.enum(['keep', 'reprefill']);
export type OnAdoption = z.infer<typeof OnAdoption>;

/** Turns tokens into text. */
type Detokenizer = Pick<Tokenizer, 'decode'>;

interface Sessions {
  readonly prefill: Session;
  readonly decode: Session;
}

/** Samples groups of rollouts from a model under LoRA policies that may change between two tokens. */
export class Decoder {
  readonly config: ModelConfig;
  readonly #weights: ReadonlyMap<string, Tensor>;
  readonly #threads: number;
  readonly #sessions = new Map<string, Promise<Sessions>>();
  readonly #feeds = new WeakMap<Adapter, Feeds>();

  readonly #openTokenizer: (() => Promise<Detokenizer>) | undefined;
  #texts: Promise<Detokenizer> | undefined;

  /** @param openTokenizer called once, at the first request with stop strings. */
  constructor(
    config: ModelConfig,
    weights: ReadonlyMap<string, Tensor>,
    threads: number,
    openTokenizer?: () => Promise<Detokenizer>,
  ) {
    this.config = config;
    this.#weights = weights;
    this.#threads = threads;
    this.#openTokenizer = openTokenizer;
  }

  static async load(directory: ModelFolder, { threads }: { threads: number }): Promise<Decoder> {
    return new Decoder(directory.config, await readWeights(directory), threads, async () => {
      const { loadTokenizer } = await import('./tokenizer.js'); // large and rarely needed, so loaded lazily
      return loadTokenizer(directory);
    });
  }

  /** Samples one group; see `sampleGroups`. */
  async sampleGroup(request: GroupRequest, policy: () => Policy): Promise<SampledRollout[]> {
    const [rollouts] = await this.sampleGroups([request], policy);
    return rollouts!;
  }

  /**
   * Samples several groups together: each prompt is read once, then all rollouts advance by one token per
   * step until they finish. A step costs little more for many rollouts than for few.
   *
   * @param policy called before each token, so that a newer version is adopted between two tokens; it
   *   may throw to abandon everything. All versions adapt the same modules.
   * @param options.isWanted called before each token, with the number of tokens of the group; a group that is no
   *   longer wanted is abandoned.
   * @returns for each request its `count` rollouts, or undefined if it was abandoned; the same seed
   *   and policies give the same rollouts, independent of the other groups (up to rounding).
   * @throws {UserError} when prompt and answer do not fit the model's positions.
   */
  async sampleGroups(
    requests: readonly GroupRequest[],
    policy: () => Policy,
    {
      isWanted = () => true,
      onAdoption = 'keep',
    }: {
      isWanted?: (request: GroupRequest, tokens: number) => boolean;
      onAdoption?: OnAdoption;
    } = {},
  ): Promise<(SampledRollout[] | undefined)[]> {
    for (const request of requests) this.checkLength(request);
    const groups = await Promise.all(
      requests.map(async (request) => new GroupDraft(request, await this.#stopsOf(request))),
    );

    let current = policy();
    const sessions = await this.#load(adaptedModules(current.adapter));
    let grid = Grid.of(groups);
    let { sampled, cache } = await this.#prefill(sessions, grid, current, requests.length);

    for (;;) {
      grid.append(sampled, current.version);
      const unfinished = grid.lanes.filter(
        ({ live, group }) => live.length > 0 && isWanted(group.request, group.length),
      );
      if (unfinished.length === 0) break;
      grid = new Grid(unfinished);

      const newest = policy();
      const isNew = newest.version !== current.version;
      current = newest;
      if (isNew && onAdoption === 'reprefill') {
        grid = grid.oneRolloutPerLane();
        ({ sampled, cache } = await this.#prefill(sessions, grid, current, requests.length));
        continue;
      }
      sampled = await sessions.decode.run({
        ...grid.rowFeeds(),
        ...grid.samplingFeeds(),
        ...cache,
        ...this.#loraFeeds(current.adapter),
      });
      cache = {
        ...cache,
        past_key: sampled['key'] as OrtTensor,
        past_value: sampled['value'] as OrtTensor,
      };
    }
    return groups.map(({ rollouts }) =>
      rollouts.every(({ isDone }) => isDone)
        ? rollouts.map((rollout) => rollout.finish())
        : undefined,
    );
  }

  /**
   * Reads what the lanes have so far, and draws the next token of each rollout.
   *
   * @param textsAtOnce how many are read together, which bounds the memory of attention.
   * @returns the tokens drawn with their logprobs, and the cache from which decoding continues.
   */
  async #prefill(
    { prefill }: Sessions,
    grid: Grid,
    { adapter }: Policy,
    textsAtOnce: number,
  ): Promise<{ sampled: InferenceSession.OnnxValueMapType; cache: Feeds }> {
    const { texts } = grid;
    const width = Math.max(...texts.map(({ length }) => length));
    const parts: InferenceSession.OnnxValueMapType[] = [];
    for (let from = 0; from < texts.length; from += textsAtOnce) {
      const part = texts.slice(from, from + textsAtOnce);
      const sampling = grid.part(from, from + textsAtOnce).samplingFeeds();
      parts.push(
        await prefill.run({ ...textFeeds(part, width), ...sampling, ...this.#loraFeeds(adapter) }),
      );
    }
    const joined = (name: string, axis: 0 | 1) => joinedTensor(parts, name, axis);
    return {
      sampled: { token: joined('token', 0), logprob: joined('logprob', 0) },
      cache: {
        prompt_key: joined('prompt_key', 1),
        prompt_value: joined('prompt_value', 1),
        prompt_bias: paddingBias(texts, width),
        ...this.#emptyCache(grid.lanes.length * grid.rowsPerLane),
      },
    };
  }

  async #stopsOf({ stopStrings = [] }: GroupRequest): Promise<StopStringMatcher | undefined> {
    if (stopStrings.length === 0) return undefined;
    this.#texts ??= this.#openTokenizer?.();
    if (this.#texts === undefined) throw new Error('stop strings need a tokenizer');
    const { decode } = await this.#texts;
    return new StopStringMatcher(decode, stopStrings);
  }

  /** @throws {UserError} when prompt and answer do not fit the model's positions. */
  checkLength({ prompt, maxTokens }: GroupRequest): void {
    const { maxPositions } = this.config;
    if (prompt.length === 0 || prompt.length + maxTokens > maxPositions) {
      throw new UserError(
        `a prompt of ${prompt.length} tokens and ${maxTokens} new ones do not fit the model's ${maxPositions} positions; lower --max-tokens`,
      );
    }
  }

  /** The feeds of an adapter, cached until the adapter is garbage collected. */
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
        Session.create(prefillGraph(this.config, source, modules), this.#threads),
        Session.create(decodeGraph(this.config, source, modules), this.#threads),
      ]).then(([prefill, decode]) => ({ prefill, decode }));
      this.#sessions.set(key, sessions);
    }
    return sessions;
  }

  #emptyCache(rows: number): Feeds {
    const { numLayers, numKvHeads, headDim } = this.config;
    const nothing = new Float32Array(0);
    return {
      past_key: floats(nothing, [numLayers, rows, numKvHeads, headDim, 0]),
      past_value: floats(nothing, [numLayers, rows, numKvHeads, 0, headDim]),
    };
  }
}
