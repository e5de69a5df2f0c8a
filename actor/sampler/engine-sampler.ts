import { setTimeout as sleep } from 'node:timers/promises';
import { Counter } from 'prom-client';
import type { Tokenizer } from '../../shared/model/tokenizer.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { scoresByAnswers, scoresByPrompts } from './canary-scores.js';
import { NotServed } from '../../shared/engine/adapter-server.js';
import type { Engine, EnginePlace, ProveServer } from './engine.js';
import type { PolicyChoice, Progress, Prove, Sampler, ComputeLogprobs } from './sampler.js';
import {
  appendSegment,
  continuationSeed,
  continuingVersion,
  continuedPrompt,
  endAtStop,
  nextSegmentLength,
} from './segments.js';
import { GroupLimit } from '../group-limit.js';
import { StallWatch } from '../stall-watch.js';
import { TaskScope } from '../../shared/base/task-scope.js';
import { LimitControl } from './limit-control.js';

interface EngineSamplerOptions {
  readonly tokenizer: Pick<Tokenizer, 'decode'>; // the model's
  readonly concurrency: Concurrency; // groups at once
  readonly segmentTokens: number; // tokens per call; 0: the whole answer in one call, by one version
  /** After this time a rollout is cut at the end of its call; needs segments. undefined: never. */
  readonly rolloutSeconds?: number | undefined;
  readonly stallSeconds?: number | undefined; // limit of a call; undefined: derived from earlier calls
  readonly log: Logger;
  readonly retryDelayMs?: number; // before a call that the engine did not serve is repeated
  /** A steady clock, in ms. */
  readonly now?: () => number;
}

/** One call for a group, by this version or, if the engine does not serve it, by one that its policy chooses later. */
type SampleCall = (version: number, request: GroupRequest) => Promise<SampledPart>;

interface SampledPart {
  readonly version: number;
  readonly sequences: SampledSequence[];
}

const cutRollouts = new Counter({
  name: 'rl_actor_rollouts_cut_total',
  help: 'Rollouts that this actor ended after --rollout-seconds and sent as they were.',
});

/** Groups that are sampled at once: a number, or as many as the engine serves well. */
type Concurrency = number | 'auto';

const startingGroups = 8;
const mostGroups = 256;
const lookEveryMs = 2_000;
const usualRetryDelayMs = 5_000;
const mostFailures = 5; // of a call, while others are served
const firstStallSeconds = 3_600; // a long answer from a busy engine

/**
 * Samples groups by calls to an engine: a call starts a group, and with segments each rollout continues by
 * calls of its own, the next of which may use a newer version.
 */
export class EngineSampler implements Sampler {
  readonly usualArithmetic = 'bf16';
  readonly limit: GroupLimit;
  readonly #engine: Engine;
  readonly #admitted = new Set<number>(); // versions to sample with
  readonly #stalls: StallWatch;
  #served = 0; // calls

  constructor(
    engine: Engine,
    private readonly options: EngineSamplerOptions,
  ) {
    this.#engine = engine;
    const { concurrency } = options;
    this.limit =
      concurrency === 'auto'
        ? new GroupLimit(startingGroups, mostGroups)
        : new GroupLimit(concurrency);
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

  get servers(): Engine['servers'] {
    return this.#engine.servers;
  }

  async load(manifest: PolicyManifest, prove: Prove, signal: AbortSignal): Promise<void> {
    const proveServer: ProveServer = (draw, ending, where) => {
      const score: ComputeLogprobs = async (canary, scoring) => {
        // The first draw that fails ends the proof with its other draws, and is not repeated: the caller of `load`
        // tries again, or goes on with a newer version.
        await using draws = new TaskScope(scoring);
        const sample = async (request: GroupRequest) => {
          draws.signal.throwIfAborted();
          return draws.track(draw(request, this.#limitMs, draws.signal));
        };
        const { mostProbable, scoresPrompts } = this.#engine;
        return await (scoresPrompts
          ? scoresByPrompts(canary, sample)
          : scoresByAnswers(canary, mostProbable, sample));
      };
      return prove(score, ending, where);
    };
    await this.#engine.load(manifest, proveServer, signal);
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
    const { rolloutSeconds = Infinity } = this.options;
    const isCutLater = rolloutSeconds < Infinity; // between two calls, so there must be several
    const segmentTokens = policy.adoptsNewer || isCutLater ? this.options.segmentTokens : 0;
    const endAtMs = this.#now() + 1_000 * rolloutSeconds;
    using place = this.#engine.place();
    await using calls = new TaskScope(signal); // a rollout that fails ends the others of its group
    let drawn = 0; // by completed calls; an aborted call does not report its tokens
    const call: SampleCall = (first, part) =>
      this.#repeated(first, policy, calls.signal, async (version) => {
        progress?.onDraw(version);
        const sequences = await this.#timed(place, version, part, calls.signal).catch(
          (error: unknown) => {
            if (drawn === 0) progress?.noneDrawn();
            throw error;
          },
        );
        drawn += sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
        return { version, sequences };
      });
    const maxTokens = nextSegmentLength(0, request.maxTokens, segmentTokens);
    try {
      const { version, sequences } = await call(policy.version, { ...request, maxTokens });
      return await Promise.all(
        sequences.map((segment, index) => {
          const rollout = this.#end(appendSegment(undefined, segment, version), request);
          const context = { request, index, policy, segmentTokens, endAtMs };
          return calls.track(this.#complete(rollout, context, call));
        }),
      );
    } catch (error) {
      progress?.wasted(drawn);
      throw error;
    }
  }

  ready(signal: AbortSignal): Promise<void> {
    return this.#engine.ready(signal);
  }

  async guard(signal: AbortSignal): Promise<void> {
    await TaskScope.run(signal, [
      (ending) => this.#engine.guard(ending),
      (ending) => this.#control(ending),
    ]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#engine[Symbol.asyncDispose]();
  }

  /** With `auto`, adapts the number of groups to the engine. */
  async #control(signal: AbortSignal): Promise<void> {
    if (this.options.concurrency !== 'auto') return;
    const control = new LimitControl(this.limit, () => performance.now());
    for (;;) {
      await sleep(lookEveryMs, undefined, { signal });
      const before = this.limit.now;
      control.look(this.#engine.metrics);
      if (this.limit.now !== before) {
        this.options.log.info(
          { before, limit: this.limit.now },
          'limit of groups in flight adapted',
        );
      }
    }
  }

  /** Continues a rollout until it has ended. */
  async #complete(
    start: SampledRollout,
    context: {
      readonly request: GroupRequest;
      readonly index: number;
      readonly policy: PolicyChoice;
      readonly segmentTokens: number;
      readonly endAtMs: number; // by the sampler's clock
    },
    call: SampleCall,
  ): Promise<SampledRollout> {
    const { request, index, policy, segmentTokens, endAtMs } = context;
    let rollout = start;
    for (;;) {
      const sampled = rollout.tokens.length;
      const maxTokens = nextSegmentLength(sampled, request.maxTokens, segmentTokens);
      if (rollout.stopReason === 'stop' || maxTokens === 0) return rollout;
      if (this.#now() >= endAtMs) {
        cutRollouts.inc();
        return { ...rollout, stopReason: 'length' };
      }
      const prompt = continuedPrompt(request.prompt, rollout);
      const seed = continuationSeed(request.seed, index, sampled);
      const rest = { ...request, prompt, seed, maxTokens, count: 1 };
      const {
        version,
        sequences: [segment],
      } = await call(continuingVersion(policy, this.#admitted), rest);
      if (segment === undefined || segment.tokens.length === 0) {
        throw new Error(`the engine continued a rollout of ${sampled} tokens by none`);
      }
      rollout = this.#end(appendSegment(rollout, segment, version), request);
    }
  }

  #end(rollout: SampledRollout, request: GroupRequest): SampledRollout {
    return endAtStop(rollout, this.options.tokenizer.decode, request);
  }

  #now(): number {
    return (this.options.now ?? performance.now.bind(performance))();
  }

  get #limitMs(): number {
    return 1_000 * this.#stalls.limit;
  }

  /** One call for a group. Those for canaries say nothing of how long a call takes. */
  async #timed(
    place: EnginePlace,
    version: number,
    request: GroupRequest,
    signal: AbortSignal,
  ): Promise<SampledSequence[]> {
    const limitMs = this.#limitMs;
    const startedAt = this.#now();
    const seconds = () => (this.#now() - startedAt) / 1_000;
    try {
      const sequences = await place.generate(version, request, limitMs, signal);
      this.#stalls.progressed(seconds());
      this.#served++;
      return sequences;
    } catch (error) {
      // When answers have become longer, none would ever end within the same limit.
      if (!signal.aborted && seconds() >= limitMs / 1_000) this.#stalls.exceeded(seconds());
      throw error;
    }
  }

  /**
   * Repeats a call until the engine serves it, each time with the version that the policy chooses then. The ticket's
   * lease is extended meanwhile. A call for a version that the engine has lost is given up after `maxAttempts`. If the
   * group may use no other version, a call is also given up once a newer one can sample: a lost version does not come
   * back then, and a newer one that was proven since the first failure shows that the engine serves others. A call at
   * which the engine itself fails is given up after five failures since it has served another. An engine
   * that only has too much to do is waited for.
   */
  async #repeated<T>(
    first: number,
    policy: PolicyChoice,
    signal: AbortSignal,
    call: (version: number) => Promise<T>,
  ): Promise<T> {
    let newestBefore: number | undefined; // that could sample at the first failure
    let servedBefore: number | undefined; // calls at the first failure
    for (let version = first, limited = 0, failed = 0; ;) {
      try {
        return await call(version);
      } catch (err) {
        if (!(err instanceof NotServed)) throw err;
        const isLimited = err.maxAttempts !== undefined;
        const newest = Math.max(version, ...this.#admitted);
        newestBefore ??= newest;
        const hasNewer = !err.isBusy && newest > (isLimited ? version : newestBefore);
        const isReplaced = !policy.adoptsNewer && hasNewer;
        servedBefore ??= this.#served;
        const failsAlone =
          this.#served > servedBefore && err.isServerFailure && ++failed >= mostFailures;
        if (isReplaced || failsAlone || (isLimited && ++limited >= err.maxAttempts))
          throw err.cause;
        this.options.log.warn({ err: err.cause, version }, 'sampling failed, retrying');
        await sleep(this.options.retryDelayMs ?? usualRetryDelayMs, undefined, { signal });
        version = continuingVersion(policy, this.#admitted);
      }
    }
  }
}
