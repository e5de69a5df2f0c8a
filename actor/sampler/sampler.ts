import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import type { SamplerKind } from '../../shared/wire/actor-lease.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';

/** The policy that samples a group. */
export interface PolicyChoice {
  readonly version: number; // the first one; it is loaded
  readonly adoptsNewer: boolean; // whether the newest loaded version takes over within the group
}

/**
 * Whether two groups use the same policy at every token, so that they can be sampled together. Groups
 * that adopt newer versions all follow the newest; other groups need the same version.
 */
export function canShareWave(a: PolicyChoice, b: PolicyChoice): boolean {
  return a.adoptsNewer === b.adoptsNewer && (a.adoptsNewer || a.version === b.version);
}

/** Callbacks by which a sampler reports the progress of a group. */
export interface Progress {
  /** The group's next tokens are drawn from this version; called at the start and at each change. */
  onDraw(version: number): void;
  /** The group was abandoned, which wasted this many tokens. */
  wasted(tokens: number): void;
}

/**
 * Samples groups with the policy versions loaded into it. An actor has one instance; the rest of the
 * actor does not depend on its kind.
 */
export interface Sampler extends AsyncDisposable {
  readonly kind: SamplerKind;
  /** The number of groups that it can usefully sample at once. */
  readonly concurrency: number;
  /** The maximum tokens of prompt and answer together, if known. */
  readonly maxContext: number | undefined;
  /** The number of versions that may be loaded at once; undefined: any. */
  readonly maxVersions: number | undefined;
  /** Why it cannot sample now; undefined if it can. */
  readonly trouble: string | undefined;

  /**
   * Makes a version ready to be sampled with. Resolves when the next token may use it.
   *
   * @throws {UserError} if this kind of sampler cannot use the manifest.
   * @throws {PermanentError} if the weights are damaged or not finite.
   */
  load(manifest: PolicyManifest, signal: AbortSignal): Promise<void>;

  /** Unloads a version. Groups that already sample with it keep it until they end. */
  drop(version: number): void;

  /** The rollouts of one group, in no particular order. Rejects soon after `signal` aborts. */
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
