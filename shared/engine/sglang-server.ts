import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import type { GroupRequest } from '../model/rollout-draft.js';
import type { SampledSequence } from '../tinker/types.js';
import {
  AdapterLost,
  type AdapterServer,
  type EngineNeed,
  type NamedAdapter,
  type ServerCall,
  type ServerFacts,
  type StartedCall,
  unfit,
} from './adapter-server.js';
import {
  adapterNames,
  ignoresTemperature,
  maybe,
  Models,
  refusalError,
  sequenceOf,
} from './engine-answer.js';
import { EngineDown, type EngineHttp, EngineRefusal } from './engine-http.js';
import { type EngineMetrics, readEngineMetrics, sglangMetrics } from './engine-metrics.js';

/** The settings of a server, among many others. */
const ServerInfo = z.object({
  version: maybe(z.string()),
  enable_lora: maybe(z.boolean()),
  max_loras_per_batch: maybe(z.int().positive()),
  max_loaded_loras: maybe(z.int().positive()),
  context_length: maybe(z.int().positive()),
});
const Done = z.object({ success: z.boolean(), error_message: maybe(z.string()) });
/** [logprob, token, its text] */
const TokenLogprob = z.tuple([z.number(), z.int().nonnegative()], z.unknown());
/** The same, of a token that need not have been drawn: null where its probability rounds to 0. */
const TopLogprob = z.tuple([z.number().nullable(), z.int().nonnegative()], z.unknown());
const Sequence = z.object({
  output_ids: maybe(z.array(z.int().nonnegative())), // [T]
  meta_info: z.object({
    finish_reason: maybe(z.object({ type: z.string() })),
    output_token_logprobs: z.array(TokenLogprob), // [T]
    output_top_logprobs: maybe(z.array(maybe(z.array(TopLogprob)))), // [T][k], of what each token was drawn from
  }),
});
type Sequence = z.output<typeof Sequence>;
const Generated = z.array(Sequence);

const quickMs = 10_000;
const abortMs = 2_000; // an actor that ends waits for it
const loadMs = 120_000;
/** Of an answer's JSON; its text is among them. */
const valuesPerToken = 24;
/** Most probable tokens of a position to ask for. */
const shownLogprobs = 20;

/**
 * SGLang 0.5.5 or newer: token ids by its own `/generate`, adapters by `/load_lora_adapter`. Older ones do not list their
 * adapters. The routes and fields are those of the sources of 0.5.5 and 0.5.23.
 */
export class SglangServer implements AdapterServer {
  readonly kind = 'sglang';
  readonly product = 'SGLang';
  readonly mostProbable = shownLogprobs;

  constructor(private readonly http: EngineHttp) {}

  get url(): string {
    return this.http.url;
  }

  async probe(need: EngineNeed, signal: AbortSignal): Promise<ServerFacts> {
    const info = await this.#info(signal);
    const base = (await this.#models(signal)).find(({ parent }) => parent === undefined);
    const problems = [];
    if (info.enable_lora !== true) {
      problems.push('it takes no adapters: add --enable-lora --lora-target-modules all');
    }
    const problem = await this.#samplingProblem(need, signal);
    if (problem !== undefined) problems.push(problem);
    const version = info.version;
    if (problems.length > 0) throw unfit(`SGLang ${version ?? ''} at ${this.url}`, problems);
    return { version, maxContext: base?.max_model_len ?? info.context_length, endsCalls: true };
  }

  async adapterSlots(signal: AbortSignal): Promise<number | undefined> {
    const { max_loras_per_batch: inBatch, max_loaded_loras: loaded } = await this.#info(signal);
    return inBatch === undefined ? undefined : Math.min(inBatch, loaded ?? Infinity);
  }

  async checkHealth(limitMs: number, signal: AbortSignal): Promise<void> {
    await this.http.text({ method: 'GET', path: '/health', limitMs }, signal);
  }

  async metrics(limitMs: number, signal: AbortSignal): Promise<EngineMetrics | undefined> {
    const text = await this.http.metrics(limitMs, signal);
    return text === undefined ? undefined : readEngineMetrics(text, sglangMetrics);
  }

  async adapters(signal: AbortSignal): Promise<string[]> {
    return adapterNames(await this.#models(signal));
  }

  async load({ name, folder, rank }: NamedAdapter, signal: AbortSignal): Promise<void> {
    const body = { lora_name: name, lora_path: folder };
    const words = await this.#change('/load_lora_adapter', body, loadMs, signal);
    if (words === undefined || /already (exists|loaded|been loaded)/.test(words)) return;
    const problem = loadProblem(words, folder, rank);
    if (problem === undefined) throw new Error(`${this.url} does not load ${folder}: ${words}`);
    throw unfit(`SGLang at ${this.url}`, [`${problem} (${words})`]);
  }

  async unload(name: string, signal: AbortSignal): Promise<void> {
    await this.#change('/unload_lora_adapter', { lora_name: name }, loadMs, signal);
  }

  async generate(call: ServerCall, signal: AbortSignal): Promise<SampledSequence[]> {
    const { id, adapter, limitMs, request } = call;
    const { prompt, count, maxTokens, temperature, stopTokenIds } = request;
    const { stopStrings = [], mostProbable = 0 } = request;
    const params = {
      temperature,
      max_new_tokens: maxTokens,
      stop_token_ids: stopTokenIds,
      ...(stopStrings.length > 0 && { stop: stopStrings }),
    };
    const tokens = count * maxTokens * (1 + mostProbable);
    const where = { id, adapter, prompt, count, limitMs, tokens, top: mostProbable };
    const sequences = await this.#generate(where, params, signal);
    if (sequences.length !== count) {
      throw new EngineDown(`${this.url} answered ${sequences.length} sequences for ${count}`);
    }
    return sequences.map((sequence) => this.#sequence(sequence, request));
  }

  /** Each sequence of a call has an id of its own, which the server makes of the call's. */
  async abort({ id, request: { count } }: StartedCall): Promise<void> {
    const { signal } = new AbortController();
    const ids = Array.from({ length: count }, (_, i) => `${id}_${i}`);
    const ends = ids.map((rid) => {
      const request = { path: '/abort_request', body: { rid }, limitMs: abortMs };
      return this.http.text(request, signal);
    });
    await Promise.all(ends);
  }

  async #info(signal: AbortSignal): Promise<z.output<typeof ServerInfo>> {
    const ask = (path: string) =>
      this.http.ask(ServerInfo, { method: 'GET', path, limitMs: quickMs }, signal);
    return await ask('/server_info').catch((error: unknown) => {
      if (error instanceof EngineRefusal && error.status === 404) return ask('/get_server_info');
      throw error;
    });
  }

  async #models(signal: AbortSignal): Promise<z.output<typeof Models>['data']> {
    const request = { method: 'GET', path: '/v1/models', limitMs: quickMs } as const;
    return (await this.http.ask(Models, request, signal)).data;
  }

  /** Loads or unloads. @returns the server's words if it does not. */
  async #change(
    path: string,
    body: Readonly<Record<string, string>>,
    limitMs: number,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    try {
      const { success, error_message: words } = await this.http.ask(
        Done,
        { path, body, limitMs },
        signal,
      );
      return success ? undefined : (words ?? 'no reason given');
    } catch (error) {
      if (error instanceof EngineRefusal) return error.detail;
      throw error;
    }
  }

  /**
   * Asks for several sequences as several prompts. With `n`, the server gives them ids that no client knows, so they cannot be aborted; and
   * until 0.5.21 it counts one use of the adapter too few, so that `/unload_lora_adapter`, and every load after it, waits forever.
   */
  async #generate(
    { id, adapter, prompt, count, limitMs, tokens, top }: TokenCall,
    params: Readonly<Record<string, unknown>>,
    signal: AbortSignal,
  ): Promise<Sequence[]> {
    const body = {
      rid: id,
      input_ids: Array.from({ length: count }, () => [...prompt]),
      ...(adapter !== undefined && { lora_path: adapter, extra_key: adapter }), // the latter: of its prefix cache
      sampling_params: { ...plainSampling, ...params },
      return_logprob: true,
      top_logprobs_num: top,
      stream: false,
    };
    const maxValues = 1_000 + valuesPerToken * tokens;
    try {
      return await this.http.ask(
        Generated,
        { path: '/generate', body, limitMs, maxValues },
        signal,
      );
    } catch (error) {
      if (!(error instanceof EngineRefusal)) throw error;
      if (!/not loaded|never been loaded/i.test(error.detail)) throw refusalError(error);
      throw new AdapterLost(error.message, { cause: error });
    }
  }

  #sequence(sequence: Sequence, request: GroupRequest): SampledSequence {
    const { output_ids: ids, meta_info: meta } = sequence;
    const tokens = meta.output_token_logprobs.map(([, token]) => token);
    const wrong = tokens.findIndex((token, i) => ids !== undefined && ids[i] !== token);
    if (wrong !== -1) {
      throw new EngineDown(
        `${this.url} answered the logprob of another token than ${ids?.[wrong]}`,
      );
    }
    const logprobs = meta.output_token_logprobs.map(([logprob]) => logprob);
    const drawn = { tokens, logprobs, shown: shownIn(sequence) };
    return sequenceOf({ ...drawn, reason: meta.finish_reason?.type }, request, this.url);
  }

  /** What keeps tokens from being sampled with the logprobs of the distribution that they are drawn from. */
  async #samplingProblem(
    { temperature, prompt }: EngineNeed,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const topAt = async (heat: number): Promise<Map<number, number>> => {
      const params = { temperature: heat, max_new_tokens: 1 };
      const call = { id: randomUUID(), adapter: undefined, prompt, count: 1, limitMs: loadMs };
      const sizes = { tokens: shownLogprobs, top: shownLogprobs };
      const [sequence] = await this.#generate({ ...call, ...sizes }, params, signal);
      const [top = []] = sequence === undefined ? [] : shownIn(sequence);
      return new Map(top.map(({ token, logprob }) => [token, logprob]));
    };
    const plain = await topAt(1);
    if (temperature === 1 || !ignoresTemperature(plain, await topAt(temperature), temperature)) {
      return undefined;
    }
    return `its logprobs are not those of the temperature of this run, ${temperature}: remove SGLANG_RETURN_ORIGINAL_LOGPROB from its environment`;
  }
}

/** The most probable tokens of each position, as the server shows them. */
function shownIn({ meta_info: { output_top_logprobs: rows = [] } }: Sequence) {
  return rows.map((row = []) =>
    row.flatMap(([logprob, token]) => (logprob === null ? [] : [{ token, logprob }])),
  );
}

/** Everything else that could change the distribution, since a server may have its own defaults. */
const plainSampling = {
  top_p: 1,
  top_k: -1,
  min_p: 0,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
};

interface TokenCall {
  readonly id: string;
  readonly adapter: string | undefined; // undefined: the base model
  readonly prompt: Int32Array; // [P]
  readonly count: number; // sequences
  readonly limitMs: number;
  readonly tokens: number; // of the largest answer
  readonly top: number; // most probable tokens of each position to report
}

/** The setting that a failed load asks for, by the server's words. */
function loadProblem(words: string, folder: string, rank: number): string | undefined {
  if (/lora is not enabled/i.test(words)) {
    return 'it takes no adapters: add --enable-lora --lora-target-modules all';
  }
  if (/rank|target.modules|incompatible|memory pool/i.test(words)) {
    return `it takes no adapters of this shape: add --max-lora-rank ${rank} --lora-target-modules all`;
  }
  if (/no such file|not found|does not exist|adapter_config|repo id/i.test(words)) {
    return `it cannot read ${folder}: name with --adapter-dir a folder that both can reach under this path`;
  }
  return undefined;
}
