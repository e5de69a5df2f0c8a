import type { VersionedPairs } from './off-policy.js';
import { type Rewind, staleness } from './staleness.js';

/** The law of off-policy training: no token is trained on that is more than `maxStepsOffPolicy` steps old. */
export interface StalenessBound {
  readonly version: number; // of the weights in training
  readonly maxStepsOffPolicy: number;
  readonly rewinds: readonly Rewind[];
}

/** The versions that sampled an answer's tokens, in order, each with its number of tokens. */
export type VersionRuns = VersionedPairs['versions'];

/** Whether the law allows training on a token that this version sampled. */
export function mayTrainOn(sampledBy: number, law: StalenessBound): boolean {
  return staleness(law.version, [sampledBy], law.rewinds) <= law.maxStepsOffPolicy;
}

/**
 * The tokens of an answer that may be trained on.
 *
 * A group is as old as its oldest token, so with `--window-policy` wait and drop a group within the bound has no other
 * tokens. With `tokens` an answer continues under newer versions, and its beginning may have become too old.
 *
 * @returns [T] 1: may be trained on, 0: is too old; undefined if all may.
 */
export function allowedTokens(versions: VersionRuns, law: StalenessBound): Uint8Array | undefined {
  if (versions.every(([version]) => mayTrainOn(version, law))) return undefined;
  const fresh = versions.map(([version, tokens]) =>
    new Uint8Array(tokens).fill(mayTrainOn(version, law) ? 1 : 0),
  );
  return Uint8Array.from(fresh.flatMap((run) => [...run]));
}

/** The pairs of the tokens that may be trained on. */
export function allowedPairs(pairs: VersionedPairs, law: StalenessBound): VersionedPairs {
  const { behavior, current, versions } = pairs;
  const fresh = allowedTokens(versions, law);
  if (fresh === undefined) return pairs;
  const isFresh = (_: number, t: number) => fresh[t] === 1;
  return {
    behavior: behavior.filter(isFresh),
    current: current.filter(isFresh),
    versions: versions.filter(([version]) => mayTrainOn(version, law)),
  };
}

/** The number of tokens of an answer that may be trained on. */
export function allowedCount(versions: VersionRuns, law: StalenessBound): number {
  return versions.reduce(
    (sum, [version, tokens]) => sum + (mayTrainOn(version, law) ? tokens : 0),
    0,
  );
}
