import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import type { PolicyStore } from '../../shared/broker/policy-store.js';
import { UserError } from '../../shared/base/errors.js';
import { requireFinite } from '../../shared/model/lora.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { fromFailure } from './decoder-failure.js';
import type { DecoderWorkerData, FromDecoder, ToDecoder } from './decoder-messages.js';
import type { GroupRequest, PolicyChoice, Progress, SampledRollout, Sampler } from './sampler.js';
import { StallWatch } from '../stall-watch.js';
import { aborted } from '../together.js';

export interface OnnxSamplerOptions {
  readonly directory: ModelDirectory;
  readonly threads: number; // of the matrix products
  readonly concurrency: number; // groups under way at once: those being sampled and those that wait
  readonly policies: Pick<PolicyStore, 'fetchAdapter'>;
  readonly stallSeconds?: number | undefined; // without a sign of life; undefined: by what it takes
  readonly log: Logger;
  readonly signal: AbortSignal; // gives up loading the model
}

const tickMs = 1_000;
const firstStallSeconds = 600; // the first prompts on a slow machine
const abandonMs = 5_000; // that the decoder may take to let go of a group
const endMs = 5_000; // and to end
const killMs = 10_000; // the rest of the process, where it does not end

/** Someone who waits for an answer of the worker. */
interface Waiter<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (error: Error) => void;
}

interface WaitingGroup extends Waiter<SampledRollout[]> {
  readonly progress: Progress | undefined;
}

/**
 * Samples with the model itself, which lives in a worker thread, so that the main thread stays free
 * for NATS and HTTP. This is its main thread's side.
 */
export class OnnxSampler implements Sampler {
  readonly kind = 'onnx';
  readonly concurrency: number;
  readonly maxContext: number;
  readonly #loads = new Map<number, Waiter<void>>(); // by version
  readonly #groups = new Map<number, WaitingGroup>(); // by id
  readonly #worker: Worker;
  readonly #ready: Promise<void>;
  readonly #broken = new AbortController(); // its reason: why this can never sample again
  readonly #stalls: StallWatch;
  #watching: NodeJS.Timeout | undefined;
  #nextId = 0;

  /**
   * Starts the worker and loads the model.
   *
   * @throws {UserError} if the directory's weights are not what its configuration says.
   */
  static async start(options: OnnxSamplerOptions): Promise<OnnxSampler> {
    const { signal } = options;
    signal.throwIfAborted();
    const sampler = new OnnxSampler(options);
    const giveUp = (): void => {
      sampler.#break(signal.reason as Error);
    };
    signal.addEventListener('abort', giveUp);
    try {
      await sampler.#ready;
      return sampler;
    } catch (error) {
      await sampler[Symbol.asyncDispose]();
      throw error;
    } finally {
      signal.removeEventListener('abort', giveUp);
    }
  }

  private constructor(private readonly options: OnnxSamplerOptions) {
    const { directory, threads, concurrency, stallSeconds } = options;
    this.#stalls = new StallWatch(stallSeconds, firstStallSeconds);
    this.concurrency = concurrency;
    this.maxContext = directory.config.maxPositions;
    this.#worker = new Worker(new URL('./decoder-worker.js', import.meta.url), {
      workerData: { modelPath: directory.path, threads } satisfies DecoderWorkerData,
    });
    this.#ready = new Promise((resolve, reject) => {
      this.#worker.on('message', (message: FromDecoder) => {
        if (message.kind === 'ready') {
          this.#watch();
          resolve();
        } else this.#take(message);
      });
      this.#broken.signal.addEventListener('abort', () => {
        reject(this.#broken.signal.reason as Error);
      });
    });
    this.#worker.on('error', (error) => {
      this.#break(new Error(`the actor's decoder died: ${error.message}`, { cause: error }));
    });
    this.#worker.on('exit', (code) => {
      this.#break(new Error(`the actor's decoder ended unexpectedly, with code ${code}`));
    });
  }

  async load(manifest: PolicyManifest, signal: AbortSignal): Promise<void> {
    const { version, adapter } = manifest;
    if (adapter === undefined) {
      throw new UserError(
        `policy version ${version} comes without its adapter, because the backend hands out no weights; start the actors with --sampler tinker`,
      );
    }
    const safetensors = await this.options.policies.fetchAdapter(manifest);
    await requireFinite(safetensors);
    signal.throwIfAborted();
    const { rank, alpha } = adapter;
    const message = { kind: 'load', adapter: { version, safetensors, rank, alpha } } as const;
    await this.#ask(message, (waiter: Waiter<void>) => this.#loads.set(version, waiter));
  }

  drop(version: number): void {
    this.#send({ kind: 'drop', version });
  }

  async sample(
    request: GroupRequest,
    policy: PolicyChoice,
    signal: AbortSignal,
    progress?: Progress,
  ): Promise<SampledRollout[]> {
    signal.throwIfAborted();
    const id = this.#nextId++;
    let hopeless: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      this.#send({ kind: 'abort', id });
      // A decoder that hangs answers nothing, and who stops must not wait for it.
      hopeless = setTimeout(() => {
        settle(this.#groups, id)?.reject(new Error('the decoder does not let go of the group'));
      }, abandonMs);
    };
    signal.addEventListener('abort', abandon, { once: true });
    try {
      return await this.#ask<SampledRollout[]>({ kind: 'sample', id, request, policy }, (waiter) =>
        this.#groups.set(id, { ...waiter, progress }),
      );
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(hopeless);
      signal.removeEventListener('abort', abandon);
    }
  }

  async guard(signal: AbortSignal): Promise<void> {
    await aborted(AbortSignal.any([signal, this.#broken.signal]));
    if (!signal.aborted) throw this.#broken.signal.reason;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#break(new Error('the sampler was closed'));
    const ended = this.#worker.terminate().then(() => true);
    if (await Promise.race([ended, sleep(endMs, false, { ref: false })])) return;
    // A thread that hangs outside JavaScript cannot be ended, and keeps the process from ending.
    this.options.log.error({ killMs }, 'the decoder cannot be ended: this process will be killed');
    setTimeout(() => process.kill(process.pid, 'SIGKILL'), killMs);
  }

  #ask<T>(message: ToDecoder, wait: (waiter: Waiter<T>) => void): Promise<T> {
    if (this.#broken.signal.aborted) return Promise.reject(this.#broken.signal.reason as Error);
    return new Promise((resolve, reject) => {
      wait({ resolve, reject });
      this.#send(message);
    });
  }

  #take(message: Exclude<FromDecoder, { kind: 'ready' }>): void {
    this.#stalls.sign();
    switch (message.kind) {
      case 'alive':
        return;
      case 'broken':
        this.#break(fromFailure(message.failure));
        return;
      case 'loaded':
        settle(this.#loads, message.version)?.resolve();
        return;
      case 'refused':
        settle(this.#loads, message.version)?.reject(fromFailure(message.failure));
        return;
      case 'draws':
        for (const id of message.ids) this.#groups.get(id)?.progress?.drawsFrom(message.version);
        return;
      case 'abandoned': {
        const group = settle(this.#groups, message.id);
        group?.progress?.wasted(message.tokens);
        group?.reject(new Error('the group was abandoned'));
        return;
      }
      case 'sampled':
        settle(this.#groups, message.id)?.resolve(message.rollouts);
        return;
      case 'failed':
        settle(this.#groups, message.id)?.reject(fromFailure(message.failure));
        return;
    }
  }

  /** Counts the time that the decoder is silent while it has something to do. */
  #watch(): void {
    let lookedAt = performance.now();
    this.#watching = setInterval(() => {
      const since = performance.now() - lookedAt;
      lookedAt = performance.now();
      if (this.#loads.size + this.#groups.size === 0) {
        this.#stalls.rest();
        return;
      }
      // A process that was stopped for an hour has not waited for an hour.
      const silent = this.#stalls.pass(Math.min(since, 2 * tickMs) / 1_000);
      if (silent === undefined) return;
      const groups = this.#groups.size;
      this.#break(
        new Error(
          `the actor's decoder hangs: no sign of life for ${Math.round(silent)} s, with ${groups} groups to sample; ` +
            'their tickets go back, and this actor must be started again',
        ),
      );
    }, tickMs).unref();
  }

  #break(error: Error): void {
    if (this.#broken.signal.aborted) return;
    clearInterval(this.#watching);
    this.#broken.abort(error);
    for (const waiters of [this.#loads, this.#groups]) {
      for (const { reject } of waiters.values()) reject(error);
      waiters.clear();
    }
  }

  #send(message: ToDecoder): void {
    this.#worker.postMessage(message);
  }
}

/** Takes the waiter out of its map: an answer is for once. */
function settle<W>(waiters: Map<number, W>, key: number): W | undefined {
  const waiter = waiters.get(key);
  waiters.delete(key);
  return waiter;
}
