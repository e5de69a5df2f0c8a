import { setTimeout as sleep } from 'node:timers/promises';
import { type AdapterLoader, requireAdapter } from '../../shared/run/adapters/adapter-loader.js';
import { requireFinite } from '../../shared/model/lora.js';
import type { ModelDirectory } from '../../shared/model/model-directory.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TokenScores } from '../../shared/rl/canary.js';
import { onnxEngine } from '../../shared/wire/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { endMs as workerEndMs, WorkerCalls } from '../../shared/service/worker-calls.js';
import type { CanaryTexts } from './canary-scores.js';
import type { DecoderCalls, DecoderEvent } from './decoder-worker.js';
import type { GroupRequest, OnAdoption, SampledRollout } from '../../shared/model/rollout-draft.js';
import type { PolicyChoice, Progress, Prove, Sampler } from './sampler.js';
import { DecoderWatch } from './decoder-watch.js';
import { GroupLimit } from '../group-limit.js';
import { aborted } from '../../shared/base/task-scope.js';

interface OnnxSamplerOptions {
  readonly directory: ModelDirectory;
  readonly threads: number; // of the matrix products
  readonly concurrency: number; // groups in progress at once, sampled or waiting
  readonly onAdoption: OnAdoption;
  readonly adapters: Pick<AdapterLoader, 'fetchAdapter'>;
  readonly stallSeconds?: number | undefined; // limit without progress; undefined: derived from its pace
  readonly log: Logger;
  readonly signal: AbortSignal; // stops loading the model
}

const tickMs = 1_000;
const abandonMs = 5_000; // time for the decoder to abandon a group
const endMs = workerEndMs + 1_000; // time for the decoder to end
const killMs = 10_000; // then the process is killed

/**
 * Samples with the model in a worker thread, so that the main thread stays free for NATS and HTTP.
 * This class is the main thread's side.
 */
export class OnnxSampler implements Sampler {
  readonly kind = 'onnx';
  readonly usualArithmetic = 'fp32';
  readonly limit: GroupLimit;
  readonly maxContext: number;
  readonly maxVersions = undefined;
  readonly trouble = undefined;
  readonly servers = [];
  readonly #sampled = new Map<number, Progress | undefined>(); // groups being sampled, by id
  readonly #decoder: WorkerCalls<DecoderCalls, DecoderEvent>;
  readonly #silence: DecoderWatch;
  #watching: NodeJS.Timeout | undefined;
  #nextId = 0;
  #engine = onnxEngine;

  /**
   * Starts the worker and loads the model.
   *
   * @throws {UserError} if the directory's weights are not what its configuration says.
   */
  static async start(options: OnnxSamplerOptions): Promise<OnnxSampler> {
    const { directory, threads, onAdoption, signal } = options;
    signal.throwIfAborted();
    const sampler = new OnnxSampler(options);
    try {
      const settings = { modelPath: directory.path, threads, onAdoption };
      sampler.#engine = await sampler.#decoder.call('start', settings, signal);
      sampler.#watch();
      return sampler;
    } catch (error) {
      await sampler[Symbol.asyncDispose]();
      throw error;
    }
  }

  private constructor(private readonly options: OnnxSamplerOptions) {
    this.#silence = new DecoderWatch(options.stallSeconds, performance.now());
    this.limit = new GroupLimit(options.concurrency);
    this.maxContext = options.directory.config.maxPositions;
    this.#decoder = new WorkerCalls(new URL('./decoder-worker.js', import.meta.url), {
      name: "the actor's decoder",
      onEvent: (event) => {
        if (event === 'alive') {
          this.#silence.drew();
          return;
        }
        this.#silence.answered();
        for (const id of event.ids) this.#sampled.get(id)?.onDraw(event.version);
      },
    });
  }

  get engine(): string {
    return this.#engine;
  }

  async load(manifest: PolicyManifest, prove: Prove, signal: AbortSignal): Promise<void> {
    const { version } = manifest;
    const { rank, alpha } = requireAdapter(manifest);
    const safetensors = await this.options.adapters.fetchAdapter(manifest, signal);
    await requireFinite(safetensors);
    signal.throwIfAborted();
    await this.#decoder.call('load', { version, safetensors, rank, alpha });
    this.#silence.answered();
    try {
      await prove((canary, ending) => this.#score(version, canary, ending), signal);
    } catch (error) {
      this.#decoder.post('discard', version);
      throw error;
    }
  }

  async #score(version: number, canary: CanaryTexts, signal: AbortSignal): Promise<TokenScores> {
    // The call transfers its buffers, and the texts are needed again.
    const texts = canary.texts.map((text) => text.slice());
    const { places, temperature } = canary;
    const asked = { version, canary: { texts, places, temperature } };
    const scores = await this.#decoder.call('score', asked, signal);
    this.#silence.drew();
    return scores;
  }

  admit(version: number): void {
    this.#decoder.post('admit', version);
  }

  drop(version: number): void {
    this.#decoder.post('drop', version);
  }

  async sample(
    request: GroupRequest,
    policy: PolicyChoice,
    signal: AbortSignal,
    progress?: Progress,
  ): Promise<SampledRollout[]> {
    signal.throwIfAborted();
    const id = this.#nextId++;
    const hopeless = new AbortController();
    let deadline: NodeJS.Timeout | undefined;
    const abandon = (): void => {
      this.#decoder.post('abandon', id);
      // A hung decoder does not answer, and shutdown must not wait for it.
      deadline = setTimeout(() => {
        hopeless.abort(new Error('the decoder does not abandon the group'));
      }, abandonMs);
    };
    signal.addEventListener('abort', abandon, { once: true });
    this.#sampled.set(id, progress);
    try {
      // The call transfers its buffer, and the prompt is needed again.
      const copy = { ...request, prompt: request.prompt.slice() };
      const group = { id, request: copy, policy };
      const sampled = await this.#decoder.call('sample', group, hopeless.signal);
      if (!('wastedTokens' in sampled)) {
        this.#silence.drew();
        return sampled;
      }
      this.#silence.answered();
      progress?.wasted(sampled.wastedTokens);
      throw new Error('the group was abandoned');
    } catch (error) {
      signal.throwIfAborted();
      throw error;
    } finally {
      this.#sampled.delete(id);
      clearTimeout(deadline);
      signal.removeEventListener('abort', abandon);
    }
  }

  ready(): Promise<void> {
    return Promise.resolve();
  }

  async guard(signal: AbortSignal): Promise<void> {
    try {
      await Promise.race([aborted(signal), this.#decoder.died]);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#watching);
    this.#decoder.giveUp(new Error('the sampler was closed'));
    const ended = this.#decoder[Symbol.asyncDispose]().then(() => true);
    if (await Promise.race([ended, sleep(endMs, false, { ref: false })])) return;
    // A thread that hangs in native code cannot be ended and keeps the process alive.
    this.options.log.error({ killMs }, 'decoder cannot be stopped, killing this process');
    const killing = setTimeout(() => process.kill(process.pid, 'SIGKILL'), killMs);
    void ended.then(() => {
      clearTimeout(killing);
    });
  }

  /** Gives up a decoder that has work and does not get on with it. */
  #watch(): void {
    this.#watching = setInterval(() => {
      const silent = this.#silence.look(performance.now(), this.#decoder.depth > 0);
      if (silent === undefined) return;
      const groups = this.#sampled.size;
      this.#decoder.giveUp(
        new Error(
          `the actor's decoder hangs: no token for ${Math.round(silent)} s, not counting waits for a processor, with ` +
            `${groups} groups to sample; their tickets go back, and this actor must be restarted`,
        ),
      );
    }, tickMs).unref();
  }
}
