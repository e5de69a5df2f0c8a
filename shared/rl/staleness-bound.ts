import type { VersionedPairs } from './off-policy.js';
import { type Rewind, staleness } from './staleness.js';

/** The bound on staleness: no token is trained on that is more than `maxStepsOffPolicy` steps old. */
export interface StalenessBound {
  readonly version: number; // of the weights in training
  readonly maxStepsOffPolicy: number;
  readonly rewinds: readonly Rewind[];
}

/** The versions that sampled an answer's tokens, in order, each with its number of tokens. */
export type VersionRuns = VersionedPairs['versions'];

/** Whether the bound allows training on a token that this version sampled. */
export function mayTrainOn(sampledBy: number, bound: StalenessBound): boolean {
  return staleness(bound.version, [sampledBy], bound.rewinds) <= bound.maxStepsOffPolicy;
}

/**
 * The tokens of an answer that may be trained on.
 *
 * With `--window-policy` wait and drop these are all tokens of a group within the bound, since the group is as old as
 * its oldest token. With `tokens` an answer continues under newer versions, so its beginning may have become too old.
 *
 * @returns [T] 1: may be trained on, 0: is too old; undefined if all may.
 */
export function allowedTokens(
  versions: VersionRuns,
  bound: StalenessBound,
): Uint8Array | undefined {
  if (versions.every(([version]) => mayTrainOn(version, bound))) return undefined;
  const fresh = versions.map(([version, tokens]) =>
    new Uint8Array(tokens).fill(mayTrainOn(version, bound) ? 1 : 0),
  );
  return Uint8Array.from(fresh.flatMap((run) => [...run]));
}

/** The pairs of the tokens that may be trained on. */
export function allowedPairs(pairs: VersionedPairs, bound: StalenessBound): VersionedPairs {
  const { behavior, current, versions } = pairs;
  const fresh = allowedTokens(versions, bound);
  if (fresh === undefined) return pairs;
  const isFresh = (_: number, t: number) => fresh[t] === 1;
  return {
    behavior: behavior.filter(isFresh),
    current: current.filter(isFresh),
    versions: versions.filter(([version]) => mayTrainOn(version, bound)),
  };
}

/** The number of tokens of an answer that may be trained on. */
export function allowedCount(versions: VersionRuns, bound: StalenessBound): number {
  return versions.reduce(
    (sum, [version, tokens]) => sum + (mayTrainOn(version, bound) ? tokens : 0),
    0,
  );
}
