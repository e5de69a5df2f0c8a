import type { GroupRequest } from '../../shared/model/rollout-draft.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { EngineLease, SamplerKind } from '../../shared/wire/actor-lease.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import type { MetricsReading } from './limit-control.js';

/**
 * A server that samples, or several alike: what {@link EngineSampler} schedules calls to. Each kind of server
 * is one implementation, which knows its protocol and nothing of groups, segments or adoption.
 */
export interface Engine extends AsyncDisposable {
  readonly kind: Exclude<SamplerKind, 'onnx'>;
  /** What computes the logprobs, with its release or the model that it serves. */
  readonly description: string;
  /** The maximum tokens of prompt and answer together, if known. */
  readonly maxContext: number | undefined;

  /** The most probable tokens that a call may ask for at each position; 0: it shows only the drawn ones. */
  readonly mostProbable: number;
  /** Whether a call may ask for the logprobs of its prompt's tokens; the answers lack them if the server does not show any. */
  readonly scoresPrompts: boolean;
  /** The number of versions that may be loaded at once; undefined: any. */
  readonly maxVersions: number | undefined;
  /** Why nothing can be sampled now; undefined if it can. */
  readonly trouble: string | undefined;
  /** Its servers as they are now, where the actor watches them. */
  readonly servers: readonly EngineLease[];
  /** The metrics of the servers in use. */
  readonly metrics: readonly MetricsReading[];

  /**
   * Makes a version ready to be sampled with; see {@link Sampler.load}.
   *
   * @param prove kept as long as the version is loaded: a server that may have lost it must pass again.
   */
  load(manifest: PolicyManifest, prove: ProveServer, signal: AbortSignal): Promise<void>;

  /** Unloads a version once its calls have ended. */
  unload(version: number): void;

  /** A place for the calls of one group, so that all of them find what the engine has cached of its prompt. */
  place(): EnginePlace;

  /** Resolves when something can be sampled. */
  ready(signal: AbortSignal): Promise<void>;

  /** Watches the servers until `signal` aborts; rejects if the engine has failed for good. */
  guard(signal: AbortSignal): Promise<void>;
}

/** Where the calls of one group are served, until it is disposed of. */
export interface EnginePlace extends Disposable {
  /**
   * Samples the sequences of a request with one version. Rejects soon after `signal` aborts.
   *
   * @param limitMs how long the engine may work on it.
   * @returns [request.count] sequences, in any order.
   * @throws {NotServed} if the same call may be served later.
   */
  generate(
    version: number,
    request: GroupRequest,
    limitMs: number,
    signal: AbortSignal,
  ): Promise<SampledSequence[]>;
}

/** Samples with one version at one server, for the proof only: no group may be sampled with it there yet. */
export type Draw = (
  request: GroupRequest,
  limitMs: number,
  signal: AbortSignal,
) => Promise<SampledSequence[]>;

/**
 * Requires that a server samples with a version.
 *
 * @param where its address, if there may be several.
 * @throws {PermanentError} if it does not.
 */
export type ProveServer = (draw: Draw, signal: AbortSignal, where?: string) => Promise<void>;
