import { randomBytes, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorText, PermanentError, UserError } from '../../shared/base/errors.js';
import { encodeAdapter } from '../../shared/model/lora.js';
import type { ModelConfig } from '../../shared/model/model-config.js';
import { linearModules } from '../../shared/model/parameters.js';
import { AdapterFolder, type AdapterFiles } from './adapter-folder.js';
import {
  type AdapterServer,
  type EngineNeed,
  requireOneEngine,
  unfit,
} from '../../shared/engine/adapter-server.js';
import { serverOf } from '../../shared/engine/dialects.js';
import { EngineDown, EngineRefusal } from '../../shared/engine/engine-http.js';
import { unknownIn } from '../../shared/engine/engine-metrics.js';
import {
  adapterName,
  isOfActor,
  ReplicaEngine,
  type ReplicaEngineOptions,
} from './replica-engine.js';

export interface ConnectEngineOptions
  extends
    Pick<
      ReplicaEngineOptions,
      'run' | 'actor' | 'adapters' | 'log' | 'checks' | 'stallSeconds' | 'now'
    >,
    EngineNeed {
  readonly kind: AdapterServer['kind'];
  readonly urls: readonly string[];
  readonly apiKey: string | undefined;
  readonly adapterDir: string | undefined;
  readonly maxLoras: number | undefined; // adapters that this actor may have loaded at once
  readonly model: ModelConfig;
  readonly rank: number; // of the run's adapters
  readonly groupSize: number;
  readonly maxStepsOffPolicy: number;
  readonly signal: AbortSignal;
  /** Called with the reason while an engine is waited for. */
  readonly waitingFor: (reason: string) => void;
}

const retryMs = 1_000;
const metricsMs = 10_000;
const rehearsalMs = 300_000; // the first call may compile kernels

/**
 * Waits until the servers answer, and checks with trial requests that they can serve the run: the routes, adapters
 * from this actor's folder, the group size, the logprobs, and room for as many versions as the run keeps in use.
 *
 * @throws {UserError} naming what is missing, with the flag that adds it.
 */
export async function connectEngine(options: ConnectEngineOptions): Promise<ReplicaEngine> {
  const { kind, urls, apiKey, adapterDir, run, actor, log } = options;
  const folder = await AdapterFolder.create(adapterDir, run, actor);
  try {
    const servers = urls.map((url) => serverOf(kind, url, apiKey));
    const process = randomBytes(3).toString('hex');
    const checked = await Promise.all(
      servers.map(async (server) => {
        await untilUp(server, options);
        await folder.touch(); // other actors may have taken it for abandoned meanwhile
        return await check(server, folder, process, options);
      }),
    );
    const slots = Math.min(...checked.map((each) => each.slots));
    const maxContext = Math.min(...checked.map((each) => each.maxContext ?? Infinity));
    log.info({ kind, engines: checked, slots }, 'what the engine offers');
    const { adapters, checks, stallSeconds, now, temperature, prompt } = options;
    const room = { slots, maxContext: Number.isFinite(maxContext) ? maxContext : undefined };
    return new ReplicaEngine({
      servers: checked.map(({ version: release, told: capacity }, i) => {
        return { server: servers[i]!, release, capacity };
      }),
      need: { temperature, prompt },
      ...{ folder, process, run, actor, adapters, log, checks, stallSeconds, now },
      ...room,
    });
  } catch (error) {
    await folder[Symbol.asyncDispose]();
    throw error;
  }
}

/** An engine takes minutes to start, and may start after its actor. */
async function untilUp(
  server: AdapterServer,
  { log, signal, waitingFor }: ConnectEngineOptions,
): Promise<void> {
  for (let attempt = 0; ; attempt++) {
    try {
      await server.checkHealth(5_000, signal);
      return;
    } catch (error) {
      if (!(error instanceof EngineDown)) throw wrongServer(server, error);
      if (attempt === 0) log.warn({ reason: error.message }, 'waiting for the engine');
      waitingFor(`waiting for the engine: ${error.message}`);
      await sleep(retryMs, undefined, { signal });
    }
  }
}

/** What one server offers. */
interface Checked {
  readonly url: string;
  readonly version: string | undefined;
  readonly maxContext: number | undefined;
  readonly told: number | undefined; // adapters that one batch may use, if known
  readonly slots: number;
}

async function check(
  server: AdapterServer,
  folder: AdapterFolder,
  process: string,
  options: ConnectEngineOptions,
): Promise<Checked> {
  const { run, actor, log, signal } = options;
  const { endsCalls, ...facts } = await orUnfit(server, server.probe(options, signal));
  if (!endsCalls) {
    const remedy = 'use vLLM 0.32 or newer';
    log.warn(
      { url: server.url, remedy },
      'engine goes on with calls that are given up for a while',
    );
  }
  const metrics = await server.metrics(metricsMs, signal);
  requireOneEngine(server, metrics);
  const unknown = unknownIn(metrics);
  if (unknown.length > 0) {
    const remedy =
      server.kind === 'sglang'
        ? 'start it with --enable-metrics; only releases with sglang:realtime_tokens_total count tokens as they are drawn'
        : 'let /metrics through';
    log.warn({ url: server.url, unknown, remedy }, 'engine does not show all metrics');
  }
  for (const name of await server.adapters(signal)) {
    if (isOfActor(name, run, actor)) await server.unload(name, signal); // a predecessor's
  }
  const told = await rehearse(server, folder, process, options);
  if (told === undefined && options.maxLoras !== undefined) {
    log.warn(
      { url: server.url, slots: options.maxLoras },
      'engine does not report its slots: if other clients load adapters there, nothing notices that one in use is evicted',
    );
  }
  const { url } = server;
  return { url, ...facts, told, slots: slotsOf(`${server.product} at ${url}`, told, options) };
}

/**
 * Loads an adapter of one layer that changes nothing, and samples a token for each rollout of a group.
 *
 * @returns the adapters that the server has room for in a batch; undefined if it does not say.
 */
async function rehearse(
  server: AdapterServer,
  folder: AdapterFolder,
  process: string,
  { model, rank, groupSize, temperature, prompt, run, actor, log, signal }: ConnectEngineOptions,
): Promise<number | undefined> {
  const sha256 = randomUUID().replaceAll('-', '');
  const name = adapterName({ run, actor, process, version: 0, sha256 });
  const path = await folder.write(name, smallAdapter(model, rank));
  await server.load({ name, folder: path, rank }, signal);
  const unload = async () => {
    await server.unload(name, signal);
    await folder.remove(name);
  };
  let slots: number | undefined;
  try {
    const tokens = { maxTokens: 1, stopTokenIds: [], seed: 0 };
    const request = { prompt, count: groupSize, temperature, ...tokens };
    const call = { id: randomUUID(), adapter: name, request, limitMs: rehearsalMs };
    await orUnfit(server, server.generate(call, signal));
    slots = await server.adapterSlots(signal);
  } catch (error) {
    // A server that fails may not unload either, which must not hide why it failed.
    await unload().catch((failure: unknown) => {
      log.warn(
        { url: server.url, adapter: name, reason: errorText(failure) },
        'adapter not unloaded',
      );
    });
    throw error;
  }
  await unload();
  return slots;
}

/** What a server refuses while it is checked, it would refuse after a restart of the actor too. */
async function orUnfit<T>(server: AdapterServer, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof PermanentError)) throw wrongServer(server, error);
    throw unfit(`${server.product} at ${server.url}`, [error.message], error);
  }
}

/** Turns a 404 or 405 into a refusal with a remedy; returns any other error unchanged. */
function wrongServer(server: AdapterServer, error: unknown): unknown {
  if (!(error instanceof EngineRefusal) || ![404, 405].includes(error.status)) return error;
  const remedy = `is it a ${server.product} server (--sampler), and is --engine-url its root, without /v1?`;
  return unfit(`${server.product} at ${server.url}`, [`${error.message}: ${remedy}`], error);
}

/** An adapter that changes nothing: B is zero. */
function smallAdapter(model: ModelConfig, rank: number): AdapterFiles {
  const tensors = new Map(
    linearModules(model).flatMap(({ module, in: width, out }) => {
      const key = `layers.0.${module}`;
      return [
        [`${key}.lora_A`, { dims: [rank, width], data: new Float32Array(rank * width).fill(1) }],
        [`${key}.lora_B`, { dims: [out, rank], data: new Float32Array(out * rank) }],
      ];
    }),
  );
  const adapter = { rank, alpha: rank, tensors };
  return { ...encodeAdapter(adapter), ...adapter };
}

/**
 * The adapters that this actor may have loaded at a server: besides the versions that rollouts in progress may still
 * use, one that is being loaded. With fewer, an engine could evict a version in use.
 *
 * @param told what the server says; undefined if it does not.
 */
function slotsOf(
  engine: string,
  told: number | undefined,
  { maxLoras, maxStepsOffPolicy, kind }: ConnectEngineOptions,
): number {
  const needed = maxStepsOffPolicy + 2;
  const flag = kind === 'vllm' ? '--max-loras' : '--max-loras-per-batch';
  const slots = maxLoras ?? told;
  if (slots === undefined) {
    throw new UserError(
      `the ${engine} does not say for how many adapters it has room in a batch: give its ${flag}, at least ${needed}, as --engine-max-loras`,
    );
  }
  if (told !== undefined && slots > told) {
    throw new UserError(
      `--engine-max-loras is ${slots}, but the ${engine} has room for ${told} in a batch: lower it, or start the engine with ${flag} ${slots}`,
    );
  }
  if (slots < needed) {
    const source = maxLoras === undefined ? `the ${engine} has room for` : '--engine-max-loras is';
    throw new UserError(
      `${source} ${slots} adapters, but a run with --max-steps-off-policy ${maxStepsOffPolicy} has ${needed} versions in use at once: start the engine with ${flag} ${needed} or more`,
    );
  }
  return slots;
}
