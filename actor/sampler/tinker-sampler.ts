import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../../shared/base/errors.js';
import type { Tokenizer } from '../../shared/model/tokenizer.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { RunLost, StillPending, Unavailable } from '../../shared/tinker/errors.js';
import type { Sampler as SampleCalls } from '../../shared/tinker/sampler.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TokenScores } from '../../shared/rl/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { scoresByDraws, type CanaryTexts } from './canary-scores.js';
import type { PolicyChoice, Progress, Sampler } from './sampler.js';
import {
  appendSegment,
  continuationSeed,
  continuingVersion,
  continuedPrompt,
  endAtStop,
  nextSegmentLength,
} from './segments.js';
import { StallWatch } from '../stall-watch.js';
import { aborted } from '../../shared/base/task-scope.js';

export interface TinkerSamplerOptions {
  readonly baseUrl: string;
  readonly apiKey: string;
  readonly modelName: string; // as the backend calls it
  readonly tokenizer: Pick<Tokenizer, 'decode'>; // the model's
  readonly concurrency: number; // groups at once
  readonly segmentTokens: number; // tokens per call; 0: the whole answer in one call, by one version
  readonly stallSeconds?: number | undefined; // limit of a call; undefined: derived from earlier calls
  readonly log: Logger;
  readonly signal: AbortSignal;
}

/** One call to the backend: samples the sequences of a request with one version. */
type SampleCall = (version: number, request: GroupRequest) => Promise<SampledSequence[]>;

const retryDelayMs = 5_000;
/** Only the learner reopens a lost sampling session, and only for recent versions. */
const maxLostAttempts = 12;
const firstStallSeconds = 3_600; // a long answer from a busy backend

/** Samples on the backend, in the sampling session that the learner opened for each version. */
export class TinkerSampler implements Sampler {
  readonly kind = 'tinker';
  readonly engine: string;
  readonly usualArithmetic = 'bf16';
  readonly concurrency: number;
  readonly #loaded = new Map<number, SampleCalls>(); // not admitted yet
  readonly #versions = new Map<number, SampleCalls>(); // to sample with
  readonly #stalls: StallWatch;

  /** @throws {UserError} if the backend cannot be used, or does not serve the run's model. */
  static async connect(options: TinkerSamplerOptions): Promise<TinkerSampler> {
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
    return new TinkerSampler(options, client, model?.maxContextLength);
  }

  private constructor(
    private readonly options: TinkerSamplerOptions,
    private readonly client: TinkerClient,
    readonly maxContext: number | undefined,
  ) {
    this.concurrency = options.concurrency;
    this.engine = `Tinker server with ${options.modelName}`.slice(0, 256);
    this.#stalls = new StallWatch(options.stallSeconds, firstStallSeconds);
  }

  load({ version, samplingSessionId }: PolicyManifest): Promise<void> {
    if (samplingSessionId === undefined) {
      const reason = `policy version ${version} names no sampling session; start the actors with --sampler onnx`;
      return Promise.reject(new UserError(reason));
    }
    this.#loaded.set(version, this.client.sampler(samplingSessionId));
    return Promise.resolve();
  }

  /** By draws: a server may compute the logprobs of prompts at another temperature than those of answers. */
  score(version: number, canary: CanaryTexts, signal: AbortSignal): Promise<TokenScores> {
    return scoresByDraws(canary, (request) => this.#call(this.#loaded, version, request, signal));
  }

  admit(version: number): void {
    const calls = this.#loaded.get(version);
    if (calls === undefined) throw new Error(`policy version ${version} is not loaded`);
    this.#loaded.delete(version);
    this.#versions.set(version, calls);
  }

  drop(version: number): void {
    this.#loaded.delete(version);
    this.#versions.delete(version);
  }

  /** Samples a group: one call starts it; with segments, each rollout continues by its own calls. */
  async sample(
    request: GroupRequest,
    policy: PolicyChoice,
    signal: AbortSignal,
    progress?: Progress,
  ): Promise<SampledRollout[]> {
    const segmentTokens = policy.adoptsNewer ? this.options.segmentTokens : 0;
    let drawn = 0; // by completed calls; an aborted call does not report its tokens
    const call: SampleCall = async (version, part) => {
      progress?.onDraw(version);
      const segments = await this.#call(this.#versions, version, part, signal);
      drawn += segments.reduce((sum, { tokens }) => sum + tokens.length, 0);
      return segments;
    };
    const maxTokens = nextSegmentLength(0, request.maxTokens, segmentTokens);
    try {
      const starts = await call(policy.version, { ...request, maxTokens });
      return await Promise.all(
        starts.map((segment, index) => {
          const rollout = this.#end(appendSegment(undefined, segment, policy.version), request);
          return this.#complete(rollout, { request, index, policy, segmentTokens }, call);
        }),
      );
    } catch (error) {
      if (signal.aborted) progress?.wasted(drawn);
      throw error;
    }
  }

  async guard(signal: AbortSignal): Promise<void> {
    await aborted(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client[Symbol.asyncDispose]();
  }

  /** Continues a rollout until it has ended. */
  async #complete(
    start: SampledRollout,
    context: { request: GroupRequest; index: number; policy: PolicyChoice; segmentTokens: number },
    call: SampleCall,
  ): Promise<SampledRollout> {
    const { request, index, policy, segmentTokens } = context;
    let rollout = start;
    for (;;) {
      const sampled = rollout.tokens.length;
      const maxTokens = nextSegmentLength(sampled, request.maxTokens, segmentTokens);
      if (rollout.stopReason === 'stop' || maxTokens === 0) return rollout;
      const version = continuingVersion(policy, this.#versions.keys());
      const prompt = continuedPrompt(request.prompt, rollout);
      const seed = continuationSeed(request.seed, index, sampled);
      const rest = { ...request, prompt, seed, maxTokens, count: 1 };
      const [segment] = await call(version, rest);
      if (segment === undefined || segment.tokens.length === 0) {
        throw new Error(`the backend continued a rollout of ${sampled} tokens by none`);
      }
      rollout = this.#end(appendSegment(rollout, segment, version), request);
    }
  }

  #end(rollout: SampledRollout, { stopStrings = [] }: GroupRequest): SampledRollout {
    return endAtStop(rollout, this.options.tokenizer.decode, stopStrings);
  }

  /** One sample call, retried while the backend is unavailable; the ticket's lease is extended meanwhile. */
  async #call(
    versions: ReadonlyMap<number, SampleCalls>,
    version: number,
    request: GroupRequest,
    signal: AbortSignal,
  ): Promise<SampledSequence[]> {
    const { prompt, count, maxTokens, temperature, seed, stopTokenIds, stopStrings = [] } = request;
    for (let lost = 0; ;) {
      const calls = versions.get(version); // again: the version may have a new session
      if (calls === undefined) throw new Error(`policy version ${version} is not loaded`);
      const startedAt = performance.now();
      try {
        const sequences = await calls.sample({
          prompt,
          numSamples: count,
          maxTokens,
          temperature,
          seed,
          // The API takes either texts or ids; with texts, a server also stops at the model's end of sequence.
          stop: stopStrings.length > 0 ? [...stopStrings] : [...stopTokenIds],
          signal,
          deadlineMs: 1_000 * this.#stalls.limit,
        });
        this.#stalls.progressed((performance.now() - startedAt) / 1_000);
        return sequences;
      } catch (err) {
        if (err instanceof StillPending) throw err; // its ticket goes back
        if (err instanceof RunLost) lost++;
        else if (!(err instanceof Unavailable)) throw err;
        if (lost === maxLostAttempts) throw err;
        this.options.log.warn({ err, version }, 'sampling failed, retrying');
        await sleep(retryDelayMs, undefined, { signal });
      }
    }
  }
}
