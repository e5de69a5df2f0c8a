import type { GroupRequest, SampledRollout } from '../../shared/model/decoder.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';

export type { GroupRequest, SampledRollout };

/** With which policy a group is sampled. */
export interface PolicyChoice {
  readonly version: number; // to start with; it was loaded
  readonly adoptsNewer: boolean; // whether the newest loaded version takes over inside the group
}

/**
 * Whether two groups may use the same policy at every token, so that they can be sampled side by side. Groups
 * that adopt newer versions all follow the newest; other groups need the same version.
 */
export function canShareWave(a: PolicyChoice, b: PolicyChoice): boolean {
  return a.adoptsNewer === b.adoptsNewer && (a.adoptsNewer || a.version === b.version);
}

/** What a sampler tells of a group while it samples. */
export interface Progress {
  /** The group's next tokens are drawn from this version: told at its start and of each change. */
  drawsFrom(version: number): void;
  /** The group was abandoned with so many tokens that were drawn for nothing. */
  wasted(tokens: number): void;
}

/**
 * Samples groups with the policy versions that were loaded into it. One instance is the whole
 * sampling power of an actor; everything else in the actor is the same for all of them.
 */
export interface Sampler extends AsyncDisposable {
  readonly kind: 'onnx' | 'tinker';
  /** How many groups it can usefully sample at once. */
  readonly concurrency: number;
  /** The most tokens that prompt and answer may have together, if it is known. */
  readonly maxContext: number | undefined;

  /**
   * Makes a version ready to be sampled with. Resolves when the next token may use it.
   *
   * @throws {UserError} if this kind of sampler can never use what the manifest offers.
   * @throws {PermanentError} if the weights are damaged or not finite.
   */
  load(manifest: PolicyManifest, signal: AbortSignal): Promise<void>;

  /** Forgets a version. Groups that already sample with it keep it to their end. */
  drop(version: number): void;

  /** The rollouts of one group, in no particular order. Rejects soon after `signal` aborts. */
  sample(
    request: GroupRequest,
    policy: PolicyChoice,
    signal: AbortSignal,
    progress?: Progress,
  ): Promise<SampledRollout[]>;

  /** Resolves once `signal` aborts; rejects as soon as the sampler can never sample again. */
  guard(signal: AbortSignal): Promise<void>;
}
