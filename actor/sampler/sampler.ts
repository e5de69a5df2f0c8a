import type { Arithmetic } from '../../shared/base/arithmetic.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import type { LogprobBand, TokenScores } from '../../shared/rl/canary.js';
import type { EngineLease, SamplerKind } from '../../shared/wire/actor-lease.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { GroupLimit } from '../group-limit.js';
import type { CanaryTexts } from './canary-scores.js';

/** The policy that samples a group. */
export interface PolicyChoice {
  readonly version: number; // the first one; it is loaded
  readonly adoptsNewer: boolean; // whether the newest loaded version takes over within the group
}

/** A group to sample, as far as a wave of groups is concerned. */
export interface WaveGroup {
  readonly policy: PolicyChoice;
  readonly request: Pick<GroupRequest, 'count'>;
}

/**
 * Whether a group can be sampled together with others: all use the same policy at every token, and have no more rows
 * than `maxRows`. Groups that adopt newer versions all follow the newest; other groups need the same version.
 */
export function joinsWave(group: WaveGroup, wave: readonly WaveGroup[], maxRows: number): boolean {
  const { policy } = group;
  const first = wave[0]!.policy;
  const isAlike = policy.adoptsNewer || policy.version === first.version;
  // Each group has as many rows as the largest.
  const largest = Math.max(...[...wave, group].map(({ request }) => request.count));
  return (
    policy.adoptsNewer === first.adoptsNewer && isAlike && (wave.length + 1) * largest <= maxRows
  );
}

/** Callbacks by which a sampler reports the progress of a group. */
export interface Progress {
  /** The group's next tokens are drawn from this version; called at the start and at each change. */
  onDraw(version: number): void;
  /** The group still has no token: the call that was to draw its first ones has failed, and another version may follow. */
  noneDrawn(): void;
  /** The group was abandoned, which wasted this many tokens. */
  wasted(tokens: number): void;
}

/**
 * The logprobs of a canary's tokens, computed by what samples.
 *
 * @param canary with how far two honest computations may be apart.
 */
export type ComputeLogprobs = (
  canary: CanaryTexts & { readonly band: LogprobBand },
  signal: AbortSignal,
) => Promise<TokenScores>;

/**
 * Checks that a sampler, or one of its servers, samples with a version: before it may, and again whenever in doubt.
 *
 * @param where the server's address, if there may be several.
 * @throws {PermanentError} if it does not.
 */
export type Prove = (score: ComputeLogprobs, signal: AbortSignal, where?: string) => Promise<void>;

/**
 * Samples groups with the policy versions loaded into it. An actor has one instance; the rest of the
 * actor does not depend on its kind.
 */
export interface Sampler extends AsyncDisposable {
  readonly kind: SamplerKind;
  /** What computes the logprobs, with its release or the model that it serves. */
  readonly engine: string;
  /** The coarsest arithmetic that this kind of sampler is used with, unless the user knows better. */
  readonly usualArithmetic: Arithmetic;
  /** The groups that it can usefully sample at once. */
  readonly limit: GroupLimit;
  /** The maximum tokens of prompt and answer together, if known. */
  readonly maxContext: number | undefined;
  /** The number of versions that may be loaded at once; undefined: any. */
  readonly maxVersions: number | undefined;
  /** Why it cannot sample now; undefined if it can. */
  readonly trouble: string | undefined;
  /** The servers that it samples with, where it watches them. */
  readonly servers: readonly EngineLease[];

  /**
   * Loads a version and proves it on everything that samples with it. The proof computes logprobs exactly as sampling
   * does (graph or requests, weights, temperature); by any other path wrong weights could pass. No group samples with
   * the version before it is admitted. Of a version that fails, the sampler keeps nothing.
   *
   * @throws {UserError} if this kind of sampler cannot use the manifest.
   * @throws {PermanentError} if the weights are damaged or not finite, or as `prove` does.
   */
  load(manifest: PolicyManifest, prove: Prove, signal: AbortSignal): Promise<void>;

  /** Lets groups sample with a loaded version; those that adopt newer versions may do so from the next token on. */
  admit(version: number): void;

  /** Unloads a version. Groups that already sample with it keep it until they end. */
  drop(version: number): void;

  /**
   * The rollouts of one group, in the order of their random numbers (`tokenDraws`) if the sampler draws by them, else in
   * any order. Rejects soon after `signal` aborts.
   */
  sample(
    request: GroupRequest,
    policy: PolicyChoice,
    signal: AbortSignal,
    progress?: Progress,
  ): Promise<SampledRollout[]>;

  /** Resolves when it can sample: a ticket leased before would only go back. */
  ready(signal: AbortSignal): Promise<void>;

  /** Resolves once `signal` aborts; rejects as soon as the sampler has failed for good. */
  guard(signal: AbortSignal): Promise<void>;
}
