import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { z } from 'zod';
import { parseSafetensors } from '../../shared/model/safetensors.js';

/** How a twin was started: the flags of the real server that matter here. */
export interface TwinFlags {
  readonly apiKey?: string;
  readonly takesAdapters: boolean;
  readonly loadsAtRuntime: boolean; // of vLLM
  readonly samplesByIds: boolean; // of vLLM
  readonly abortsCalls: boolean; // of vLLM, by a route
  readonly tellsSlots: boolean;
  readonly slots: number; // adapters in one batch
  readonly maxRank: number;
  readonly maxContext: number;
  readonly appliesTemperature: boolean; // to the logprobs that it reports
  readonly showsMetrics: boolean;
  readonly countsLive: boolean; // of SGLang: tokens as they are drawn, not only those of requests that have ended
}

export const twinFlags: TwinFlags = {
  takesAdapters: true,
  loadsAtRuntime: true,
  samplesByIds: true,
  abortsCalls: true,
  tellsSlots: true,
  slots: 6,
  maxRank: 32,
  maxContext: 64,
  appliesTemperature: true,
  showsMetrics: true,
  countsLive: true,
};

/** An answer: JSON, or text, of a status. */
export interface TwinAnswer {
  readonly status?: number;
  readonly json?: unknown;
  readonly text?: string;
}

/** What a twin is asked to draw. */
export interface TwinDraw {
  readonly adapter: string | undefined;
  readonly temperature: number;
  readonly count: number;
  readonly maxTokens: number;
  readonly seed: number;
  readonly stopTokenIds: readonly number[];
  readonly prompt: readonly number[];
  readonly stopStrings: readonly string[];
  readonly mostProbable: number; // tokens to show at each position
}

/** A sequence that a twin has drawn. */
export interface TwinSequence {
  readonly tokens: readonly number[]; // [T]
  readonly logprobs: readonly number[]; // [T]
  readonly stopReason: 'stop' | 'length';
  readonly top: readonly (readonly TwinLogprob[])[]; // [T][mostProbable], the most probable first
}

interface TwinLogprob {
  readonly token: number;
  readonly logprob: number;
}

/** A real model for a twin to serve. */
export interface TwinModel extends AsyncDisposable {
  /** Takes an adapter from a folder. @param loaded those that the twin has, with it. */
  load(name: string, folder: string, loaded: ReadonlyMap<string, string>): Promise<void>;
  sample(draw: TwinDraw): Promise<TwinSequence[]>;
}

export const twinVocabulary = 8;

/**
 * The protocol of a server that samples with adapters, made from its documentation, by default over a model of eight tokens
 * whose logprobs anyone can compute. It refuses what it does not know, reads adapters from their folders, and counts
 * what a real one would have evicted.
 */
export abstract class EngineTwin implements AsyncDisposable {
  /** Every request, in order. */
  readonly seen: {
    readonly path: string;
    readonly body: unknown;
    readonly authorization: string | undefined;
  }[] = [];
  /** Paths of the adapters by name, the least recently used first. */
  readonly loaded = new Map<string, string>();
  /** Adapters that had no room when another was loaded. */
  readonly evicted: string[] = [];
  /** Adapters that were loaded at any time, in order. */
  readonly everLoaded: string[] = [];
  /** Held open until released, if set: calls that sample, health checks, or loads of adapters. */
  holds: {
    readonly sampling?: Promise<void>;
    readonly health?: Promise<void>;
    readonly loads?: Promise<void>;
  } = {};
  /** Calls that sample whose connection was closed before the answer. */
  readonly disconnected: string[] = [];
  /** What it counts, since it was started; `finished` are calls that were answered. */
  counters = { generated: 0, prompt: 0, running: 0, finished: 0, startedAt: 0 };
  /** Draws with the logprobs of another version, as an engine does whose adapters were mixed up. */
  confuses: (adapter: string) => string = (adapter) => adapter;
  /** Why it does not load an adapter, in its own words; undefined: it does. */
  refusesAdapter: (name: string) => string | undefined = () => undefined;
  /** Every call that samples takes this much longer. */
  delayMs = 0;
  static #starts = 0;
  #server: ReturnType<typeof createServer> | undefined;
  #port = 0;

  constructor(
    public flags: TwinFlags,
    private readonly model?: TwinModel,
  ) {}

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Starts it, or starts it again at the same port without its adapters. */
  async start(): Promise<this> {
    this.loaded.clear();
    const startedAt = 1e9 + EngineTwin.#starts++;
    this.counters = { generated: 0, prompt: 0, running: 0, finished: 0, startedAt };
    const server = createServer((request, response) => void this.#serve(request, response));
    this.#server = server;
    await new Promise<void>((resolve) => server.listen(this.#port, '127.0.0.1', resolve));
    this.#port = (server.address() as AddressInfo).port;
    return this;
  }

  /** Ends it as a crash does. */
  async stop(): Promise<void> {
    const server = this.#server;
    if (server === undefined) return;
    this.#server = undefined;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
    await this.model?.[Symbol.asyncDispose]();
  }

  /** The bodies sent to a path. */
  sent(path: string): unknown[] {
    const bodies = this.seen.filter((each) => each.path === path).map(({ body }) => body);
    return bodies.filter((body) => body !== undefined);
  }

  /** [twinVocabulary] the logprobs of the next token. */
  logprobs({ adapter, temperature }: Pick<TwinDraw, 'adapter' | 'temperature'>): number[] {
    const tilt = adapter === undefined ? 0 : versionIn(this.confuses(adapter));
    const heat = this.flags.appliesTemperature && temperature > 0 ? temperature : 1;
    const logits = Array.from({ length: twinVocabulary }, (_, i) => (-i * (tilt + 2)) / 4 / heat);
    const total = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit), 0));
    return logits.map((logit) => logit - total);
  }

  /** The sequences of a request. */
  protected async sample(draw: TwinDraw): Promise<TwinSequence[]> {
    if (this.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, this.delayMs));
    if (this.model !== undefined) return await this.#sampleWith(this.model, draw);
    const all = this.logprobs(draw);
    const top = all.map((logprob, token) => ({ token, logprob })).slice(0, draw.mostProbable);
    return this.draw(draw).map((tokens): TwinSequence => {
      const hasStopped = draw.stopTokenIds.includes(tokens.at(-1)!);
      return {
        tokens,
        logprobs: tokens.map((token) => all[token]!),
        stopReason: hasStopped ? 'stop' : 'length',
        top: tokens.map(() => top),
      };
    });
  }

  async #sampleWith(model: TwinModel, draw: TwinDraw): Promise<TwinSequence[]> {
    const sequences = await model.sample(draw);
    this.counters.prompt += draw.prompt.length;
    this.counters.generated += sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
    return sequences;
  }

  /** The tokens of each sequence, which ends at a stop token. */
  protected draw({
    count,
    maxTokens,
    seed,
    stopTokenIds,
  }: Pick<TwinDraw, 'count' | 'maxTokens' | 'seed' | 'stopTokenIds'>): number[][] {
    this.counters.prompt++;
    this.counters.generated += count; // at least one each
    return Array.from({ length: count }, (_, index) => {
      const tokens: number[] = [];
      while (tokens.length < maxTokens) {
        const token = (seed + index + tokens.length) % twinVocabulary;
        tokens.push(token);
        if (stopTokenIds.includes(token)) break;
      }
      return tokens;
    });
  }

  /** The answer to a request; undefined: there is no such route. */
  protected abstract answer(
    method: string,
    path: string,
    body: unknown,
  ): Promise<TwinAnswer | undefined> | TwinAnswer | undefined;

  /** Whether a path samples. */
  protected abstract samples(path: string): boolean;

  /** Why it does not take an adapter of these tensors. */
  protected problemOfAdapter(_names: readonly string[]): string | undefined {
    return undefined;
  }

  /** Reads an adapter and takes a slot. @returns why it cannot. */
  protected async takeAdapter(name: string, folder: string): Promise<string | undefined> {
    const refusal = this.refusesAdapter(name);
    if (refusal !== undefined) return refusal;
    let config: string;
    let names: string[];
    try {
      config = await readFile(join(folder, 'adapter_config.json'), 'utf8');
      const bytes = await readFile(join(folder, 'adapter_model.safetensors'));
      names = [...parseSafetensors(bytes, 'the file').keys()];
    } catch {
      return `No adapter found for ${folder}`;
    }
    const problem = this.problemOfAdapter(names);
    if (problem !== undefined) return problem;
    await this.holds.loads; // it has read the files, and goes on even if they are removed
    const { r } = z.object({ r: z.int().positive() }).parse(JSON.parse(config));
    if (r > this.flags.maxRank) {
      return `LoRA rank ${r} is greater than max_lora_rank ${this.flags.maxRank}.`;
    }
    this.loaded.set(name, folder);
    this.everLoaded.push(name);
    const [oldest] = this.loaded.keys();
    if (this.loaded.size > this.flags.slots && oldest !== undefined) this.evicted.push(oldest);
    await this.model?.load(name, folder, this.loaded);
    return undefined;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const text = Buffer.concat(parts).toString();
    const body: unknown = text === '' ? undefined : JSON.parse(text);
    const path = request.url ?? '';
    const { authorization } = request.headers;
    this.seen.push({ path, body, authorization });
    const { apiKey } = this.flags;
    const isOpen = path === '/health';
    const isAllowed = authorization === `Bearer ${String(apiKey)}`;
    if (apiKey !== undefined && !isOpen && !isAllowed) {
      response.writeHead(401).end(JSON.stringify({ error: 'Unauthorized' }));
      return;
    }
    let isAnswered = false;
    response.on('close', () => {
      if (!isAnswered && this.samples(path)) this.disconnected.push(path);
    });
    const { counters } = this; // of the process that it is now
    if (this.samples(path)) {
      counters.running++;
      await this.holds.sampling;
      counters.running--;
    }
    if (isOpen) await this.holds.health;
    const answer = (await this.answer(request.method ?? '', path, body)) ?? {
      status: 404,
      json: { detail: 'Not Found' },
    };
    isAnswered = true;
    if (this.samples(path)) counters.finished++;
    const type = answer.json === undefined ? 'text/plain' : 'application/json';
    response
      .writeHead(answer.status ?? 200, { 'content-type': type })
      .end(answer.json === undefined ? (answer.text ?? '') : JSON.stringify(answer.json));
  }
}

/** The policy version that an adapter's name contains. */
function versionIn(adapter: string): number {
  return Number(/\.v(\d+)\./.exec(adapter)?.[1] ?? 0);
}
