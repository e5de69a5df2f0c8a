import { createRandom } from '../../shared/base/random.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { lengthAtStop } from '../../shared/model/stop-strings.js';
import type { SampledSequence } from '../../shared/tinker/types.js';
import type { PolicyChoice } from './sampler.js';

/**
 * How many tokens the next sample call may produce.
 *
 * @param segmentTokens tokens per call; 0 asks for the rest of the answer at once.
 * @returns 0 when the answer is complete.
 */
export function nextSegmentLength(
  sampled: number,
  maxTokens: number,
  segmentTokens: number,
): number {
  const rest = Math.max(0, maxTokens - sampled);
  return segmentTokens === 0 ? rest : Math.min(rest, segmentTokens);
}

/** The rollout extended by a segment that `version` sampled. */
export function appendSegment(
  rollout: SampledRollout | undefined,
  { tokens, logprobs, stopReason }: SampledSequence,
  version: number,
): SampledRollout {
  return {
    tokens: joinTokens(rollout?.tokens ?? [], tokens),
    behaviorLogprobs: joinLogprobs(rollout?.behaviorLogprobs ?? [], logprobs),
    versions: extendRuns(rollout?.versions ?? [], version, tokens.length),
    stopReason,
  };
}

/**
 * The rollout, cut after its first stop string or end-of-sequence token. The server may have missed it: a call does
 * not detect a stop string that began in the previous call, and a server may return tokens after a stop string or know
 * fewer end-of-sequence tokens.
 */
export function endAtStop(
  rollout: SampledRollout,
  decode: (tokens: Int32Array) => string,
  { stopStrings = [], stopTokenIds }: Pick<GroupRequest, 'stopStrings' | 'stopTokenIds'>,
): SampledRollout {
  const end = rollout.tokens.findIndex((token) => stopTokenIds.includes(token));
  const tokens = end === -1 ? rollout.tokens : rollout.tokens.subarray(0, end + 1);
  const stop = lengthAtStop(tokens, decode, stopStrings);
  if (end === -1 && stop === undefined) return rollout;
  // The reason is corrected even if nothing is cut off: if a call's last token happens to be the end, the server may
  // report that the call reached its length.
  const length = stop ?? tokens.length;
  return {
    tokens: rollout.tokens.slice(0, length),
    behaviorLogprobs: rollout.behaviorLogprobs.slice(0, length),
    versions: firstRuns(rollout.versions, length),
    stopReason: 'stop',
  };
}

/**
 * The version that continues a rollout. Needed for single-version groups too, because a server may end
 * a call before all tokens are sampled.
 *
 * @param loaded the versions that are loaded now.
 */
export function continuingVersion(
  { version, adoptsNewer }: PolicyChoice,
  loaded: Iterable<number>,
): number {
  return adoptsNewer ? Math.max(version, ...loaded) : version;
}

/** [P + T] The prompt and all tokens sampled so far, from which a rollout continues. */
export function continuedPrompt(prompt: Int32Array, rollout: SampledRollout): Int32Array {
  return joinTokens(prompt, rollout.tokens);
}

/**
 * The seed of one continuation. Rollouts of a group share the ticket's seed, but each continues in its
 * own call, which would draw the same random numbers again from the same seed.
 */
export function continuationSeed(seed: number, rolloutIndex: number, sampled: number): number {
  return createRandom(`${seed}/${rolloutIndex}/${sampled}`).int(2 ** 31);
}

function joinTokens(head: ArrayLike<number>, tail: Int32Array): Int32Array {
  const whole = new Int32Array(head.length + tail.length);
  whole.set(head);
  whole.set(tail, head.length);
  return whole;
}

function joinLogprobs(head: ArrayLike<number>, tail: Float32Array): Float32Array {
  const whole = new Float32Array(head.length + tail.length);
  whole.set(head);
  whole.set(tail, head.length);
  return whole;
}

/** Which policy version sampled each token, as runs in token order: [version, number of tokens]. */
export type VersionRuns = [version: number, count: number][];

/** The runs of the first `count` tokens. */
export function firstRuns(runs: Readonly<VersionRuns>, count: number): VersionRuns {
  let rest = count;
  return runs.flatMap(([version, length]): VersionRuns => {
    const taken = Math.min(length, rest);
    rest -= taken;
    return taken > 0 ? [[version, taken]] : [];
  });
}

/**
 * The runs after `count` more tokens by `version`.
 *
 * @param count tokens; 0 leaves the runs as they are, because a run is never empty.
 * @throws {RangeError} if `version` is lower than the last: versions never decrease within a rollout.
 */
export function extendRuns(
  runs: Readonly<VersionRuns>,
  version: number,
  count: number,
): VersionRuns {
  if (count === 0) return [...runs];
  const last = runs.at(-1);
  if (last === undefined || version > last[0]) return [...runs, [version, count]];
  if (version === last[0]) return [...runs.slice(0, -1), [version, last[1] + count]];
  throw new RangeError(`version ${version} sampled after version ${last[0]} in one rollout`);
}
