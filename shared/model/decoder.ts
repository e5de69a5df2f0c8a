import type { InferenceSession } from 'onnxruntime-node';
import { z } from 'zod';
import { UserError } from '../base/errors.js';
import { cacheNames, decodeGraph, prefillGraph, type LayerLayout } from './decode-graph.js';
import { Grid, joinedTensor, paddingBias, textFeeds } from './decode-grid.js';
import { floats, Session, type Feeds, type OrtTensor } from './graph/session.js';
import { adaptedModules, samplingLoraFeeds, type AdaptedModules } from './lora-graph.js';
import type { Adapter } from './lora.js';
import type { ModelConfig } from './model-config.js';
import { readWeights, type ModelFolder } from './model-weights.js';
import { isSmall } from './parameters.js';
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
  readonly #readWeights: () => Promise<ReadonlyMap<string, Tensor>>;
  readonly #threads: number;
  readonly #layout: LayerLayout;
  readonly #sessions = new Map<string, Promise<Sessions>>();
  readonly #feeds = new WeakMap<Adapter, Feeds>();

  readonly #openTokenizer: (() => Promise<Detokenizer>) | undefined;
  #texts: Promise<Detokenizer> | undefined;

  /**
   * @param weights read again for each list of adapted modules, since the sessions have copies of their own.
   * @param openTokenizer called once, at the first request with stop strings.
   * @param isStacked of `LayerLayout`.
   */
  constructor(
    config: ModelConfig,
    weights: () => Promise<ReadonlyMap<string, Tensor>>,
    threads: number,
    openTokenizer?: () => Promise<Detokenizer>,
    isStacked = isSmall(config),
  ) {
    this.config = config;
    this.#readWeights = weights;
    this.#threads = threads;
    this.#layout = { numLayers: config.numLayers, isStacked };
    this.#openTokenizer = openTokenizer;
  }

  /** The decoder of a checked directory, whose weights are read when the first group is sampled. */
  static of(directory: ModelFolder, { threads }: { threads: number }): Decoder {
    return new Decoder(
      directory.config,
      () => readWeights(directory),
      threads,
      async () => {
        const { loadTokenizer } = await import('./tokenizer.js'); // large and rarely needed, so loaded lazily
        return loadTokenizer(directory);
      },
    );
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
      cache = { ...cache, ...this.#past(sampled) };
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
        ...this.#joinedCache('prompt_key', joined),
        ...this.#joinedCache('prompt_value', joined),
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
    if (feeds === undefined)
      this.#feeds.set(adapter, (feeds = samplingLoraFeeds(adapter, this.#layout.isStacked)));
    return feeds;
  }

  #load(modules: AdaptedModules): Promise<Sessions> {
    const key = modules.join();
    let sessions = this.#sessions.get(key);
    if (sessions === undefined) {
      sessions = this.#create(modules);
      this.#sessions.set(key, sessions);
    }
    return sessions;
  }

  async #create(modules: AdaptedModules): Promise<Sessions> {
    const source = frozen(await this.#readWeights());
    // One after the other: each needs its weights twice while it is created.
    const prefill = await Session.create(
      prefillGraph(this.config, source, modules, this.#layout),
      this.#threads,
    );
    const decode = await Session.create(
      decodeGraph(this.config, source, modules, this.#layout),
      this.#threads,
    );
    return { prefill, decode };
  }

  #joinedCache(name: string, joined: (name: string, axis: 0 | 1) => OrtTensor): Feeds {
    const axis = this.#layout.isStacked ? 1 : 0; // after the axis of the layers, if they are stacked
    return Object.fromEntries(
      cacheNames(this.#layout, name).map((tensor) => [tensor, joined(tensor, axis)]),
    );
  }

  /** A decoding step's cache as the next one's past. */
  #past(sampled: InferenceSession.OnnxValueMapType): Feeds {
    const names = ['key', 'value'].flatMap((name) => cacheNames(this.#layout, name));
    return Object.fromEntries(names.map((name) => [`past_${name}`, sampled[name] as OrtTensor]));
  }

  #emptyCache(rows: number): Feeds {
    const { numLayers, numKvHeads, headDim } = this.config;
    const nothing = new Float32Array(0);
    const layers = this.#layout.isStacked ? [numLayers] : [];
    const empty = (name: string, dims: readonly number[]) =>
      cacheNames(this.#layout, name).map((tensor) => [
        tensor,
        floats(nothing, [...layers, ...dims]),
      ]);
    return Object.fromEntries([
      ...empty('past_key', [rows, numKvHeads, headDim, 0]),
      ...empty('past_value', [rows, numKvHeads, 0, headDim]),
    ]) as Feeds;
  }
}
