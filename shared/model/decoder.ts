import type { InferenceSession } from 'onnxruntime-node';
import { UserError } from '../base/errors.js';
import { lazily, remembered } from '../base/remembered.js';
import { cacheNames, samplingGraph, type LayerLayout, type SamplingPart } from './decode-graph.js';
import type { Graph } from './graph/graph.js';
import { Grid, indices, joinedTensor, paddingBias, textFeeds } from './decode-grid.js';
import { floats, OrtTensor, release, Session, type Feeds } from './graph/session.js';
import {
  adaptedMatrices,
  adaptedModules,
  loraFeeds,
  mergingGraph,
  samplingLoraFeeds,
  type AdaptedModules,
} from './lora-graph.js';
import type { Adapter } from './lora.js';
import type { ModelConfig } from './model-config.js';
import { storedWeights, type ModelFolder } from './model-weights.js';
import { isSmall } from './parameters.js';
import {
  GroupDraft,
  type GroupRequest,
  type OnAdoption,
  type SampledRollout,
} from './rollout-draft.js';
import { StopStringMatcher } from './stop-strings.js';
import type { Tokenizer } from './tokenizer.js';
import { frozen, withInputs, type WeightSource } from './weight-source.js';

/** A policy version to sample with. Its adapter must not change after its first use. */
export interface Policy {
  readonly version: number;
  readonly adapter: Adapter;
}

/** Turns tokens into text. */
type Detokenizer = Pick<Tokenizer, 'decode'>;

/** Tokens of prompts that a large model reads together: more would be no faster, and need more memory. */
const largeModelTokens = 512;

/** The sessions of a list of adapted modules. */
interface Sessions {
  readonly prompts: Session;
  readonly steps: Session; // the same one if the model is large
  readonly merging: Session | undefined; // of adapters into the weights, if the model is small
}

/** Samples groups of rollouts from a model under LoRA policies that may change between two tokens. */
export class Decoder {
  readonly config: ModelConfig;
  readonly #openWeights: () => Promise<WeightSource>;
  readonly #threads: number;
  readonly #layout: LayerLayout;
  readonly #sessions = new Map<string, Promise<Sessions>>();
  readonly #feeds = new WeakMap<Adapter, Promise<Feeds>>();

  readonly #tokenizer: (() => Promise<Detokenizer>) | undefined;

  /**
   * @param openWeights called for each list of adapted modules, since the sessions have copies of their own.
   * @param openTokenizer called at the first request with stop strings.
   * @param isSmallModel whether calls cost more than arithmetic: then layers are stacked and prompts have a session
   *   of their own, with another copy of the weights.
   */
  constructor(
    config: ModelConfig,
    openWeights: () => Promise<WeightSource>,
    threads: number,
    openTokenizer?: () => Promise<Detokenizer>,
    isSmallModel = isSmall(config),
  ) {
    this.config = config;
    this.#openWeights = openWeights;
    this.#threads = threads;
    this.#layout = { numLayers: config.numLayers, isStacked: isSmallModel };
    this.#tokenizer = openTokenizer && lazily(openTokenizer);
  }

  /** The decoder of a checked directory, whose weights are read when the first group is sampled. */
  static of(
    directory: ModelFolder,
    { threads, isSmallModel }: { threads: number; isSmallModel?: boolean },
  ): Decoder {
    return new Decoder(
      directory.config,
      async () => frozen(await storedWeights(directory)),
      threads,
      async () => {
        const { loadTokenizer } = await import('./tokenizer.js'); // large and rarely needed, so loaded lazily
        return loadTokenizer(directory);
      },
      isSmallModel,
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
   * @param options.onRead called after each part of the texts that is read, of prompts or of what was sampled so far: a
   *   large model reads few at once, so many take long.
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
      onRead = () => undefined,
    }: {
      isWanted?: (request: GroupRequest, tokens: number) => boolean;
      onAdoption?: OnAdoption;
      onRead?: () => void;
    } = {},
  ): Promise<(SampledRollout[] | undefined)[]> {
    for (const request of requests) this.checkLength(request);
    const groups = await Promise.all(
      requests.map(async (request) => new GroupDraft(request, await this.#stopsOf(request))),
    );

    let current = policy();
    const sessions = await this.#load(adaptedModules(current.adapter));
    let grid = Grid.of(groups);
    const reading = { mostAtOnce: requests.length, onRead };
    let { sampled, cache } = await this.#prefill(sessions, grid, current, reading);

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
        release(Object.values(cache));
        ({ sampled, cache } = await this.#prefill(sessions, grid, current, reading));
        continue;
      }
      sampled = await sessions.steps.run({
        ...grid.rowFeeds(),
        ...(sessions.steps === sessions.prompts ? { ends: indices(grid.size) } : {}),
        ...grid.samplingFeeds(),
        ...cache,
        ...(await this.#adapterFeeds(sessions, current.adapter)),
      });
      const before = cache;
      cache = { ...before, ...this.#past(sampled) };
      release(Object.values(before), Object.values(cache));
    }
    release(Object.values(cache));
    return groups.map(({ rollouts }) =>
      rollouts.every(({ isDone }) => isDone)
        ? rollouts.map((rollout) => rollout.finish())
        : undefined,
    );
  }

  /**
   * Reads what the lanes have so far, and draws the next token of each rollout.
   *
   * @param reading.mostAtOnce texts that are read together at most, which bounds the memory of attention.
   * @returns the tokens drawn with their logprobs, and the cache from which decoding continues.
   */
  async #prefill(
    sessions: Sessions,
    grid: Grid,
    { adapter }: Policy,
    { mostAtOnce, onRead }: { readonly mostAtOnce: number; readonly onRead: () => void },
  ): Promise<{ sampled: InferenceSession.OnnxValueMapType; cache: Feeds }> {
    const { prompts, steps } = sessions;
    const { texts } = grid;
    const width = Math.max(...texts.map(({ length }) => length));
    const textsAtOnce = this.#layout.isStacked
      ? mostAtOnce
      : Math.min(mostAtOnce, Math.max(1, Math.floor(largeModelTokens / width)));
    const parts: InferenceSession.OnnxValueMapType[] = [];
    for (let from = 0; from < texts.length; from += textsAtOnce) {
      const part = texts.slice(from, from + textsAtOnce);
      parts.push(
        await prompts.run({
          ...textFeeds(part, width, grid.rowsPerLane),
          ...(prompts === steps ? this.#noPast(part.length) : {}),
          ...grid.part(from, from + textsAtOnce).samplingFeeds(),
          ...(await this.#adapterFeeds(sessions, adapter)),
        }),
      );
      onRead();
    }
    const sampled = {
      token: joinedTensor(parts, 'token', 0),
      logprob: joinedTensor(parts, 'logprob', 0),
    };
    const cache = {
      ...this.#promptCache(parts),
      prompt_bias: paddingBias(texts, width),
      ...this.#cache('past', [grid.size], 0),
    };
    const written = parts.flatMap((part) => Object.values<OrtTensor>(part));
    release(written, [...Object.values(sampled), ...Object.values(cache)]);
    return { sampled, cache };
  }

  async #stopsOf({ stopStrings = [] }: GroupRequest): Promise<StopStringMatcher | undefined> {
    if (stopStrings.length === 0) return undefined;
    if (this.#tokenizer === undefined) throw new Error('stop strings need a tokenizer');
    const { decode } = await this.#tokenizer();
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
  #adapterFeeds({ merging }: Sessions, adapter: Adapter): Promise<Feeds> {
    return remembered(this.#feeds, adapter, () =>
      merging === undefined
        ? Promise.resolve(samplingLoraFeeds(adapter))
        : merging.run(loraFeeds(adapter)),
    );
  }

  #load(modules: AdaptedModules): Promise<Sessions> {
    return remembered(this.#sessions, modules.join(), () => this.#create(modules));
  }

  async #create(modules: AdaptedModules): Promise<Sessions> {
    const source = await this.#openWeights();
    const isSmallModel = this.#layout.isStacked;
    const open = (graph: Graph) =>
      Session.create(graph, this.#threads, { keepsFreed: isSmallModel });
    if (!isSmallModel) {
      const both = await open(samplingGraph(this.config, source, modules, this.#layout, 'both'));
      return { prompts: both, steps: both, merging: undefined };
    }
    // An adapter's own products would be a fifth of a step, so it is merged into the matrices.
    const merged = withInputs(source, adaptedMatrices(this.config, modules));
    const sampling = (part: SamplingPart) =>
      open(samplingGraph(this.config, merged, [], this.#layout, part));
    return {
      prompts: await sampling('prompts'),
      steps: await sampling('steps'),
      merging:
        modules.length === 0 ? undefined : await open(mergingGraph(this.config, source, modules)),
    };
  }

  /** The caches that prompts wrote, as those of decoding: with an axis for the rows of each group. */
  #promptCache(parts: readonly InferenceSession.OnnxValueMapType[]): Feeds {
    const axis = this.#layout.isStacked ? 1 : 0; // after the axis of the layers, if they are stacked
    const entries = ['key', 'value'].flatMap((kind) =>
      cacheNames(this.#layout, kind).map((name) => {
        const written = joinedTensor(parts, name, axis);
        const dims = written.dims.toSpliced(axis + 1, 0, 1);
        return [`prompt_${name}`, new OrtTensor('float32', written.data as Float32Array, dims)];
      }),
    );
    return Object.fromEntries(entries) as Feeds;
  }

  /** Texts have nothing before them: a prompt of one token, which is padding, and no tokens of their own. */
  #noPast(texts: number): Feeds {
    const padding = new Float32Array(texts).fill(-Infinity);
    return {
      rows: indices(texts),
      groups: indices(texts),
      prompt_bias: floats(padding, [texts, 1, 1, 1, 1]),
      ...this.#cache('prompt', [texts, 1], 1),
      ...this.#cache('past', [texts], 0),
    };
  }

  /** A decoding step's cache as the next one's past. */
  #past(sampled: InferenceSession.OnnxValueMapType): Feeds {
    const names = ['key', 'value'].flatMap((name) => cacheNames(this.#layout, name));
    return Object.fromEntries(names.map((name) => [`past_${name}`, sampled[name] as OrtTensor]));
  }

  /** A cache of zeros for `length` tokens. */
  #cache(name: string, rows: readonly number[], length: number): Feeds {
    const { numLayers, numKvHeads, headDim } = this.config;
    const layers = this.#layout.isStacked ? [numLayers] : [];
    const zeros = (kind: string, ...last: number[]) => {
      const dims = [...layers, ...rows, numKvHeads, ...last];
      const tensor = floats(new Float32Array(dims.reduce((a, b) => a * b, 1)), dims);
      return cacheNames(this.#layout, `${name}_${kind}`).map((own) => [own, tensor]);
    };
    return Object.fromEntries([
      ...zeros('key', headDim, length),
      ...zeros('value', length, headDim),
    ]) as Feeds;
  }
}
