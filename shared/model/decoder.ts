import type { InferenceSession } from 'onnxruntime-node';
import { UserError } from '../base/errors.js';
import { decodeGraph, prefillGraph } from './decode-graph.js';
import { floatOutput, floats, integers, OrtTensor, Session, type Feeds } from './graph/session.js';
import { adaptedModules, stackedLoraFeeds, type AdaptedModules } from './lora-graph.js';
import type { Adapter } from './lora.js';
import type { ModelConfig } from './model-config.js';
import { readWeights, type ModelFolder } from './model-weights.js';
import { GroupDraft, type GroupRequest, type SampledRollout } from './rollout-draft.js';
import type { Tensor } from './safetensors.js';
import { frozen } from './sequence-graph.js';
import { StopWatch } from './stop-strings.js';
import type { Tokenizer } from './tokenizer.js';

export type { GroupRequest, SampledRollout };

/** A policy version to sample with. Its adapter must not change after its first use. */
export interface Policy {
  readonly version: number;
  readonly adapter: Adapter;
}

/** Tokens as text. */
type Texts = Pick<Tokenizer, 'decode'>;

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

  readonly #openTokenizer: (() => Promise<Texts>) | undefined;
  #texts: Promise<Texts> | undefined;

  /** @param openTokenizer called once, at the first request with stop strings. */
  constructor(
    config: ModelConfig,
    weights: ReadonlyMap<string, Tensor>,
    threads: number,
    openTokenizer?: () => Promise<Texts>,
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
   * @param isWanted called before each token, with the number of tokens of the group; a group that is no
   *   longer wanted is abandoned.
   * @returns for each request its `count` rollouts, or undefined if it was abandoned; the same seed
   *   and policies give the same rollouts, independent of the other groups (up to rounding).
   * @throws {UserError} when prompt and answer do not fit the model's positions.
   */
  async sampleGroups(
    requests: readonly GroupRequest[],
    policy: () => Policy,
    isWanted: (request: GroupRequest, tokens: number) => boolean = () => true,
  ): Promise<(SampledRollout[] | undefined)[]> {
    for (const request of requests) this.checkLength(request);
    const groups = await Promise.all(
      requests.map(async (request) => new GroupDraft(request, await this.#stopsOf(request))),
    );

    let current = policy();
    const { prefill, decode } = await this.#load(adaptedModules(current.adapter));
    let lora = this.#loraFeeds(current.adapter);
    const perGroup = Math.max(...requests.map(({ count }) => count));
    for (const group of groups) {
      group.live = group.rollouts.map((rollout, row) => ({ row, rollout }));
    }
    let grid = new Grid(groups, perGroup);
    let sampled = await prefill.run({ ...promptFeeds(requests), ...grid.chance(), ...lora });
    const prompts: Feeds = {
      prompt_key: sampled['prompt_key'] as OrtTensor,
      prompt_value: sampled['prompt_value'] as OrtTensor,
    };
    const paddingOf = promptBias(requests);
    let cache = this.#emptyCache(groups.length * perGroup);

    for (;;) {
      grid.append(sampled, current.version);
      const unfinished = grid.groups.filter(
        ({ live, request, length }) => live.length > 0 && isWanted(request, length),
      );
      if (unfinished.length === 0) break;
      grid = new Grid(unfinished, Math.max(...unfinished.map(({ live }) => live.length)));

      const newest = policy();
      if (newest.version !== current.version) lora = this.#loraFeeds(newest.adapter);
      current = newest;
      const places = unfinished.map((group) => groups.indexOf(group));
      sampled = await decode.run({
        ...grid.feeds(),
        ...grid.chance(),
        groups: integers(places, [places.length]),
        prompt_bias: paddingOf,
        ...prompts,
        ...cache,
        ...lora,
      });
      cache = {
        past_key: sampled['key'] as OrtTensor,
        past_value: sampled['value'] as OrtTensor,
      };
    }
    return groups.map(({ live, rollouts }) =>
      live.length > 0 ? undefined : rollouts.map((rollout) => rollout.finish()),
    );
  }

  async #stopsOf({ stopStrings = [] }: GroupRequest): Promise<StopWatch | undefined> {
    if (stopStrings.length === 0) return undefined;
    this.#texts ??= this.#openTokenizer?.();
    if (this.#texts === undefined) throw new Error('stop strings need a tokenizer');
    const { decode } = await this.#texts;
    return new StopWatch(decode, stopStrings);
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

/**
 * The rows of one step: every group has as many as the group with the most live rollouts. A group with
 * fewer repeats its first row, and the results of these rows are ignored.
 */
class Grid {
  constructor(
    readonly groups: readonly GroupDraft[],
    readonly perGroup: number,
  ) {}

  /** The random numbers and sampling parameters of the step; rows · groups of each. */
  chance(): Feeds {
    const temperatures = this.#column(({ request }) => request.temperature || 1);
    const uniform = this.#column((group, place) => (place < group.live.length ? group.draw() : 0));
    const isGreedy = this.#column(({ request }) => Number(request.temperature === 0));
    const dims = [uniform.length, 1];
    return {
      uniform: floats(uniform, dims),
      temperature: floats(temperatures, dims),
      greedy: new OrtTensor('bool', Uint8Array.from(isGreedy), dims),
    };
  }

  /** The row inputs of a decoding step. */
  feeds(): Feeds {
    const { groups, perGroup } = this;
    const at = ({ live }: GroupDraft, place: number) => live[place] ?? live[0]!;
    const dims = [groups.length, perGroup];
    const rows = this.#column((group, place) => at(group, place).row);
    const tokens = this.#column((group, place) => at(group, place).rollout.lastToken);
    const positions = this.#column((group, place) => {
      const { rollout } = at(group, place);
      return group.request.prompt.length + rollout.length - 1;
    });
    return {
      tokens: integers(tokens, dims),
      rows: integers(rows, [rows.length]),
      positions: integers(positions, [positions.length, 1]),
    };
  }

  /** Appends to each live rollout the token of its row, and removes the rollouts that are finished. */
  append(sampled: InferenceSession.OnnxValueMapType, version: number): void {
    const tokens = sampled['token']!.data as BigInt64Array;
    const logprobs = floatOutput(sampled, 'logprob');
    this.groups.forEach((group, g) => {
      const rows = group.live.map(({ rollout }, place) => ({
        row: g * this.perGroup + place,
        rollout,
      }));
      for (const { row, rollout } of rows) {
        rollout.append(Number(tokens[row]), logprobs[row]!, version);
      }
      group.live = rows.filter(({ rollout }) => !rollout.isDone);
    });
  }

  #column(value: (group: GroupDraft, place: number) => number): Float32Array {
    const { groups, perGroup } = this;
    return Float32Array.from({ length: groups.length * perGroup }, (_, i) =>
      value(groups[Math.floor(i / perGroup)]!, i % perGroup),
    );
  }
}

/** The prompts in one batch, padded at their ends, and the row of the last token of each. */
function promptFeeds(requests: readonly GroupRequest[]): Feeds {
  const width = Math.max(...requests.map(({ prompt }) => prompt.length));
  const tokens = new Int32Array(requests.length * width);
  requests.forEach(({ prompt }, g) => {
    tokens.set(prompt, g * width);
  });
  const ends = requests.map(({ prompt }, g) => g * width + prompt.length - 1);
  return {
    tokens: integers(tokens, [requests.length, width]),
    ends: integers(ends, [ends.length]),
  };
}

/** 0 where a prompt has a token, -∞ on its padding: [groups, 1, 1, 1, prompt]. */
function promptBias(requests: readonly GroupRequest[]): OrtTensor {
  const width = Math.max(...requests.map(({ prompt }) => prompt.length));
  const bias = requests.flatMap(({ prompt }) =>
    Array.from({ length: width }, (_, i) => (i < prompt.length ? 0 : -Infinity)),
  );
  return floats(Float32Array.from(bias), [requests.length, 1, 1, 1, width]);
}
