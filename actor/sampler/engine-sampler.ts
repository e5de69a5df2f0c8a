import { setTimeout as sleep } from 'node:timers/promises';
import type { Tokenizer } from '../../shared/model/tokenizer.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TokenScores } from '../../shared/rl/canary.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { scoresByAnswers, type CanaryTexts } from './canary-scores.js';
import { NotServed } from '../../shared/engine/adapter-server.js';
import type { Engine, EnginePlace } from './engine.js';
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

export interface EngineSamplerOptions {
  readonly tokenizer: Pick<Tokenizer, 'decode'>; // the model's
  readonly concurrency: number; // groups at once
  readonly segmentTokens: number; // tokens per call; 0: the whole answer in one call, by one version
  readonly stallSeconds?: number | undefined; // limit of a call; undefined: derived from earlier calls
  readonly log: Logger;
}

/** One call for a group: samples the sequences of a request with one version. */
type SampleCall = (version: number, request: GroupRequest) => Promise<SampledSequence[]>;

const retryDelayMs = 5_000;
const firstStallSeconds = 3_600; // a long answer from a busy engine

/**
 * Samples groups by calls to an engine: a call starts a group, and with segments each rollout continues by
 * calls of its own, the next of which may use a newer version.
 */
export class EngineSampler implements Sampler {
  readonly usualArithmetic = 'bf16';
  readonly concurrency: number;
  readonly #engine: Engine;
  readonly #admitted = new Set<number>(); // versions to sample with
  readonly #stalls: StallWatch;

  constructor(
    engine: Engine,
    private readonly options: EngineSamplerOptions,
  ) {
    this.#engine = engine;
    this.concurrency = options.concurrency;
    this.#stalls = new StallWatch(options.stallSeconds, firstStallSeconds);
  }

  get kind(): Engine['kind'] {
    return this.#engine.kind;
  }

  get engine(): string {
    return this.#engine.description.slice(0, 256);
  }

  get maxContext(): number | undefined {
    return this.#engine.maxContext;
  }

  get maxVersions(): number | undefined {
    return this.#engine.maxVersions;
  }

  get trouble(): string | undefined {
    return this.#engine.trouble;
  }

  async load(manifest: PolicyManifest, signal: AbortSignal): Promise<void> {
    await this.#engine.load(manifest, signal);
  }

  /** By answers of one token: a server may compute the logprobs of prompts at another temperature than those of answers. */
  score(version: number, canary: CanaryTexts, signal: AbortSignal): Promise<TokenScores> {
    return scoresByAnswers(canary, this.#engine.mostProbable, async (request) => {
      using place = this.#engine.place(); // of its own, so that each server has a part of the canary
      return await this.#call(place, version, request, signal);
    });
  }

  admit(version: number): void {
    this.#admitted.add(version);
  }

  drop(version: number): void {
    this.#admitted.delete(version);
    this.#engine.unload(version);
  }

  async sample(
    request: GroupRequest,
    policy: PolicyChoice,
    signal: AbortSignal,
    progress?: Progress,
  ): Promise<SampledRollout[]> {
    const segmentTokens = policy.adoptsNewer ? this.options.segmentTokens : 0;
    using place = this.#engine.place();
    let drawn = 0; // by completed calls; an aborted call does not report its tokens
    const call: SampleCall = async (version, part) => {
      progress?.onDraw(version);
      const segments = await this.#call(place, version, part, signal);
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

  ready(signal: AbortSignal): Promise<void> {
    return this.#engine.ready(signal);
  }

  guard(signal: AbortSignal): Promise<void> {
    return this.#engine.guard(signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#engine[Symbol.asyncDispose]();
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
      const version = continuingVersion(policy, this.#admitted);
      const prompt = continuedPrompt(request.prompt, rollout);
      const seed = continuationSeed(request.seed, index, sampled);
      const rest = { ...request, prompt, seed, maxTokens, count: 1 };
      const [segment] = await call(version, rest);
      if (segment === undefined || segment.tokens.length === 0) {
        throw new Error(`the engine continued a rollout of ${sampled} tokens by none`);
      }
      rollout = this.#end(appendSegment(rollout, segment, version), request);
    }
  }

  #end(rollout: SampledRollout, { stopStrings = [] }: GroupRequest): SampledRollout {
    return endAtStop(rollout, this.options.tokenizer.decode, stopStrings);
  }

  /** One call, repeated while the engine does not serve it; the ticket's lease is extended meanwhile. */
  async #call(
    place: EnginePlace,
    version: number,
    request: GroupRequest,
    signal: AbortSignal,
  ): Promise<SampledSequence[]> {
    for (let limited = 0; ;) {
      const startedAt = performance.now();
      try {
        const limitMs = 1_000 * this.#stalls.limit;
        const sequences = await place.generate(version, request, limitMs, signal);
        this.#stalls.progressed((performance.now() - startedAt) / 1_000);
        return sequences;
      } catch (err) {
        if (!(err instanceof NotServed)) throw err;
        if (err.maxAttempts !== undefined && ++limited >= err.maxAttempts) throw err.cause;
        this.options.log.warn({ err: err.cause, version }, 'sampling failed, retrying');
        await sleep(retryDelayMs, undefined, { signal });
      }
    }
  }
}
