import { UserError } from '../../shared/base/errors.js';
import { aborted } from '../../shared/base/task-scope.js';
import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import {
  BadAnswer,
  BadRequest,
  RunLost,
  StillPending,
  OperationFailed,
  Unavailable,
} from '../../shared/tinker/errors.js';
import type { Sampler as SampleCalls } from '../../shared/tinker/sampler.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { NotServed } from '../../shared/engine/adapter-server.js';
import type { Engine, EnginePlace, ProveServer } from './engine.js';

interface TinkerEngineOptions {
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly modelName: string; // as the backend calls it
  readonly connectPatienceMs?: number; // how long to wait for a server that is just starting
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly fetch?: typeof fetch; // replaced in tests
}

/**
 * Attempts with a lost sampling session, which this actor does not open again: the learner restores its state and then
 * publishes a newer version with a new session.
 */
const maxLostAttempts = 12;

/** A Tinker server, with the sampling session that the learner opened for each version. */
export class TinkerEngine implements Engine {
  readonly kind = 'tinker';
  readonly mostProbable = 0; // not every server shows any
  readonly scoresPrompts = true;
  readonly maxVersions = undefined;
  readonly metrics = [];
  readonly servers = []; // the backend is the learner's to watch
  readonly trouble = undefined; // a call waits for a backend that is away
  readonly #versions = new Map<number, SampleCalls>();

  /** @throws {UserError} if the backend cannot be used, or does not serve the run's model. */
  static async connect(options: TinkerEngineOptions): Promise<TinkerEngine> {
    const { baseUrl, modelName } = options;
    const client = await TinkerClient.connect(options);
    const model = client.models.find(({ name }) => name === modelName);
    if (model === undefined && client.models.length > 0) {
      await client[Symbol.asyncDispose]();
      const names = client.models.map(({ name }) => name).join(', ');
      throw new UserError(
        `the backend at ${baseUrl} does not serve ${modelName}, the model of this run, but ${names}; give --backend-url of the learner's backend`,
      );
    }
    return new TinkerEngine(
      client,
      options.log,
      `Tinker server with ${modelName}`,
      model?.maxContextLength,
    );
  }

  private constructor(
    private readonly client: TinkerClient,
    private readonly log: Logger,
    readonly description: string,
    readonly maxContext: number | undefined,
  ) {}

  async load(
    { version, samplingSessionId }: PolicyManifest,
    prove: ProveServer,
    signal: AbortSignal,
  ): Promise<void> {
    if (samplingSessionId === undefined) {
      throw new UserError(
        `policy version ${version} names no sampling session; start the actors with --sampler onnx`,
      );
    }
    const calls = this.client.sampler(samplingSessionId);
    await prove((...call) => this.#sample(calls, version, ...call), signal);
    this.#versions.set(version, calls); // only now: it may replace another session of the version
  }

  unload(version: number): void {
    this.#versions.delete(version);
  }

  place(): EnginePlace {
    return {
      generate: async (version, request, limitMs, signal) =>
        this.#sample(this.#sampler(version), version, request, limitMs, signal),
      [Symbol.dispose]: () => undefined,
    };
  }

  ready(): Promise<void> {
    return Promise.resolve();
  }

  async guard(signal: AbortSignal): Promise<void> {
    await aborted(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
  }

  #sampler(version: number): SampleCalls {
    const calls = this.#versions.get(version);
    if (calls === undefined) throw new Error(`policy version ${version} is not loaded`);
    return calls;
  }

  async #sample(
    calls: SampleCalls,
    version: number,
    request: GroupRequest,
    deadlineMs: number,
    signal: AbortSignal,
  ): Promise<SampledSequence[]> {
    const { prompt, count, maxTokens, temperature, seed, stopTokenIds, stopStrings = [] } = request;
    const { scoresPrompt = false, ...unscored } = request;
    try {
      return await calls.sample({
        prompt,
        numSamples: count,
        maxTokens,
        temperature,
        seed,
        // The API takes either texts or ids; with texts, a server also stops at the model's end of sequence.
        stop: stopStrings.length > 0 ? [...stopStrings] : [...stopTokenIds],
        signal,
        deadlineMs,
        scoresPrompt,
      });
    } catch (error) {
      const isRefused = error instanceof BadRequest || error instanceof BadAnswer;
      if (scoresPrompt && (isRefused || error instanceof Unavailable)) {
        // Not every server knows the question, and some fail at it: the answers alone will do.
        this.log.warn({ err: error, version }, 'the backend refused to score a prompt');
        return this.#sample(calls, version, unscored, deadlineMs, signal);
      }
      if (error instanceof StillPending) throw error; // its ticket goes back
      if (error instanceof RunLost) throw new NotServed(error, { maxAttempts: maxLostAttempts });
      if (error instanceof Unavailable) {
        throw new NotServed(error, { isServerFailure: error instanceof OperationFailed });
      }
      throw error;
    }
  }
}
