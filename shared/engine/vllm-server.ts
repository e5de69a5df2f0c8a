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
import { EngineDown, type EngineHttp, EngineRefusal, unlessRefused } from './engine-http.js';
import { type EngineMetrics, readEngineMetrics, vllmMetrics } from './engine-metrics.js';

const Version = z.object({ version: z.string() });
const ServerInfo = z.object({
  vllm_config: z.object({
    lora_config: maybe(z.object({ max_loras: z.int().positive() })),
  }),
});
const TokenLogprob = z.object({
  token_id: maybe(z.int().nonnegative()),
  token: maybe(z.string()), // `token_id:5`, from servers that have no field for the number
  logprob: z.number(),
});
const Choice = z.object({
  token_ids: z.array(z.int().nonnegative()), // [T]
  finish_reason: maybe(z.string()),
  logprobs: z.object({
    content: z.array(TokenLogprob.extend({ top_logprobs: z.array(TokenLogprob).default([]) })), // [T]
  }),
  weight_versions: maybe(z.array(z.object({ version: maybe(z.string()) }))),
});
const Generated = z.object({ choices: z.array(Choice) });

const quickMs = 10_000;
const abortMs = 2_000; // an actor that ends waits for it
const loadMs = 120_000;
/** Of an answer's JSON. */
const valuesPerToken = 24;
/** Logprobs of one position; servers allow 20 unless told otherwise, and the probe asks for as many. */
const shownLogprobs = 20;

/** Everything else that could change the distribution, since a server may have its own defaults. */
const plainSampling = {
  top_p: 1,
  top_k: 0,
  min_p: 0,
  presence_penalty: 0,
  frequency_penalty: 0,
  repetition_penalty: 1,
  ignore_eos: true, // the run's own stop tokens are named
  output_kind: 2, // all sequences at the end; 0.27 answers only the last that ends of several without it
};

/** vLLM 0.24 or newer: token ids by `/inference/v1/generate`, adapters by `/v1/load_lora_adapter`. */
export class VllmServer implements AdapterServer {
  readonly kind = 'vllm';
  readonly product = 'vLLM';
  readonly mostProbable = shownLogprobs;

  constructor(private readonly http: EngineHttp) {}

  get url(): string {
    return this.http.url;
  }

  async probe(need: EngineNeed, signal: AbortSignal): Promise<ServerFacts> {
    const { version } = await this.#get('/version', Version, signal);
    const base = (await this.#models(signal)).find(({ parent }) => parent === undefined);
    if (base === undefined) throw new EngineDown(`${this.url} serves no model`);
    const problems = [
      await this.#loadingProblem(signal),
      await this.#samplingProblem(base.id, need, signal),
    ].filter((problem) => problem !== undefined);
    if (problems.length > 0) throw unfit(`vLLM ${version} at ${this.url}`, problems);
    return { version, maxContext: base.max_model_len, endsCalls: await this.#endsCalls(signal) };
  }

  /** By a development route, or by a metric that exists once a call has used an adapter. */
  async adapterSlots(signal: AbortSignal): Promise<number | undefined> {
    const path = '/server_info?config_format=json';
    const info = await unlessRefused(this.#get(path, ServerInfo, signal));
    if (info !== undefined) return info.vllm_config.lora_config?.max_loras;
    const metrics = await this.http.metrics(quickMs, signal);
    const [, slots] = /^vllm:lora_requests_info\{[^}]*max_lora="(\d+)"/m.exec(metrics ?? '') ?? [];
    return Number(slots ?? 0) || undefined;
  }

  async checkHealth(limitMs: number, signal: AbortSignal): Promise<void> {
    await this.http.text({ method: 'GET', path: '/health', limitMs }, signal);
  }

  async metrics(limitMs: number, signal: AbortSignal): Promise<EngineMetrics | undefined> {
    const text = await this.http.metrics(limitMs, signal);
    return text === undefined ? undefined : readEngineMetrics(text, vllmMetrics);
  }

  async adapters(signal: AbortSignal): Promise<string[]> {
    return adapterNames(await this.#models(signal));
  }

  async load({ name, folder, rank }: NamedAdapter, signal: AbortSignal): Promise<void> {
    const body = { lora_name: name, lora_path: folder };
    try {
      await this.http.text({ path: '/v1/load_lora_adapter', body, limitMs: loadMs }, signal);
    } catch (error) {
      if (!(error instanceof EngineDown || error instanceof EngineRefusal)) throw error;
      if (/already been ?loaded/.test(error.message)) return;
      const problem = loadProblem(error.message, folder, rank);
      if (problem === undefined) throw error;
      throw unfit(`vLLM at ${this.url}`, [`${problem} (${error.message})`], error);
    }
  }

  async unload(name: string, signal: AbortSignal): Promise<void> {
    const body = { lora_name: name };
    const request = { path: '/v1/unload_lora_adapter', body, limitMs: quickMs };
    await unlessRefused(this.http.text(request, signal));
  }

  async generate(call: ServerCall, signal: AbortSignal): Promise<SampledSequence[]> {
    const { id, adapter, limitMs, request } = call;
    const { prompt, count, maxTokens, temperature, seed, stopTokenIds } = request;
    const { stopStrings = [], mostProbable = 0 } = request;
    const params = {
      n: count,
      logprobs: mostProbable,
      seed,
      temperature,
      max_tokens: maxTokens,
      stop_token_ids: stopTokenIds,
      ...(stopStrings.length > 0 && { stop: stopStrings }),
    };
    const where = {
      id,
      model: adapter,
      prompt,
      limitMs,
      tokens: count * maxTokens * (1 + mostProbable),
    };
    const choices = await this.#generate(where, params, signal);
    if (choices.length !== count) {
      throw new EngineDown(`${this.url} answered ${choices.length} sequences for ${count}`);
    }
    return choices.map((choice) => this.#sequence(choice, request));
  }

  async abort({ id }: StartedCall): Promise<void> {
    const body = { request_ids: [`generate-tokens-${id}`] };
    const request = { path: abortPath, body, limitMs: abortMs };
    await this.http.text(request, new AbortController().signal);
  }

  #get<S extends z.ZodType>(path: string, schema: S, signal: AbortSignal): Promise<z.output<S>> {
    return this.http.ask(schema, { method: 'GET', path, limitMs: quickMs }, signal);
  }

  async #models(signal: AbortSignal): Promise<z.output<typeof Models>['data']> {
    return (await this.#get('/v1/models', Models, signal)).data;
  }

  async #generate(
    { id, model, prompt, limitMs, tokens }: TokenCall,
    params: Readonly<Record<string, unknown>>,
    signal: AbortSignal,
  ): Promise<Choice[]> {
    const body = {
      request_id: id,
      model,
      token_ids: [...prompt],
      sampling_params: { ...plainSampling, logprobs: 0, ...params },
      cache_salt: model, // what one version has cached is never read by another
    };
    const path = '/inference/v1/generate';
    const maxValues = 1_000 + valuesPerToken * tokens;
    try {
      return (await this.http.ask(Generated, { path, body, limitMs, maxValues }, signal)).choices;
    } catch (error) {
      if (!(error instanceof EngineRefusal)) throw error;
      if (error.status !== 404 || !/does not exist/.test(error.detail)) throw refusalError(error);
      throw new AdapterLost(error.message, { cause: error });
    }
  }

  #sequence(choice: Choice, request: GroupRequest): SampledSequence {
    const { token_ids: tokens, finish_reason: reason, weight_versions: spans } = choice;
    const { content } = choice.logprobs;
    const wrong = content.findIndex((entry, i) => tokenOf(entry) !== tokens[i]);
    if (wrong !== -1) {
      throw new EngineDown(
        `${this.url} answered the logprob of another token than ${tokens[wrong]}`,
      );
    }
    if (spans !== undefined && new Set(spans.map(({ version }) => version)).size > 1) {
      throw new EngineDown(`${this.url} changed the weights of its base model within an answer`);
    }
    const logprobs = content.map(({ logprob }) => logprob);
    return sequenceOf({ tokens, logprobs, shown: shownIn(choice), reason }, request, this.url);
  }

  /** What keeps adapters from being loaded while the server runs; the route that unloads them is there as well. */
  async #loadingProblem(signal: AbortSignal): Promise<string | undefined> {
    const body = { lora_name: 'offbeat-probe' };
    const request = { path: '/v1/unload_lora_adapter', body, limitMs: quickMs };
    try {
      await this.http.text(request, signal);
      return undefined;
    } catch (error) {
      if (!(error instanceof EngineRefusal)) throw error;
      return loadProblem(error.message, '', 0);
    }
  }

  /** Whether it has the route that ends calls, as from 0.32 on: asked by a method that the route does not have. */
  async #endsCalls(signal: AbortSignal): Promise<boolean> {
    const request = { method: 'GET', path: abortPath, limitMs: quickMs } as const;
    try {
      await this.http.text(request, signal);
    } catch (error) {
      if (!(error instanceof EngineRefusal)) throw error;
      return error.status !== 404;
    }
    return true;
  }

  /** What keeps tokens from being sampled by id, with the logprobs of the distribution that they are drawn from. */
  async #samplingProblem(
    model: string,
    { temperature, prompt }: EngineNeed,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const topAt = async (heat: number): Promise<Map<number, number>> => {
      const call = { id: randomUUID(), model, prompt, limitMs: loadMs, tokens: shownLogprobs };
      const params = { n: 1, temperature: heat, max_tokens: 1, logprobs: shownLogprobs };
      const [choice] = await this.#generate(call, params, signal);
      const top = choice?.logprobs.content[0]?.top_logprobs ?? [];
      return new Map(top.map((entry) => [tokenOf(entry) ?? -1, entry.logprob]));
    };
    try {
      const plain = await topAt(1);
      if (temperature === 1 || !ignoresTemperature(plain, await topAt(temperature), temperature)) {
        return undefined;
      }
      return `its logprobs are not those of the temperature of this run, ${temperature}: add --logprobs-mode processed_logprobs`;
    } catch (error) {
      const { cause } = error as Error;
      if (!(cause instanceof EngineRefusal) || ![403, 404, 405].includes(cause.status)) throw error;
      return `it does not sample by token ids: add --enable-scale-out (${cause.message})`;
    }
  }
}

const abortPath = '/inference/v1/abort_requests';

type Choice = z.output<typeof Choice>;

interface TokenCall {
  readonly id: string;
  readonly model: string; // or adapter
  readonly prompt: Int32Array; // [P]
  readonly limitMs: number;
  readonly tokens: number; // of the largest answer
}

function tokenOf({ token_id: id, token }: z.output<typeof TokenLogprob>): number | undefined {
  if (id !== undefined) return id;
  const digits = /^token_id:(\d+)$/.exec(token ?? '')?.[1];
  return digits === undefined ? undefined : Number(digits);
}

/** The most probable tokens of each position, as the server shows them. */
function shownIn({ logprobs: { content } }: Choice) {
  return content.map(({ top_logprobs: row }) =>
    row.map((entry) => ({ token: tokenOf(entry) ?? 0, logprob: entry.logprob })),
  );
}

/** The setting that a failed load asks for, by the server's words. */
function loadProblem(words: string, folder: string, rank: number): string | undefined {
  if (/with 40[45]: (Not Found|Method Not Allowed)$/.test(words)) {
    return 'it loads no adapters while it runs: set VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment';
  }
  if (/lora is not enabled|enable.lora|lora_manager|lora_config/i.test(words)) {
    return 'it takes no adapters: add --enable-lora';
  }
  if (/max_lora_rank|max.lora.rank/i.test(words)) {
    return `it takes no adapters of rank ${rank}: add --max-lora-rank ${rank}, or the next larger rank that it accepts`;
  }
  if (/no adapter found|no such file|adapter_config/i.test(words)) {
    return `it cannot read ${folder}: name with --adapter-dir a folder that both can reach under this path`;
  }
  return undefined;
}
