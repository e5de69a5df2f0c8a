import { sum } from '../../shared/base/statistics.js';
import type { Setting } from './policies.js';

/**
 * A lower bound on the seconds in which any policy can train these groups within the staleness bound, even one that knows
 * how long every answer takes and chooses the order of tickets, of answers and of training. It is the largest of
 * three relaxations:
 *
 * - **training** one batch after another, the first when some group can have arrived;
 * - **sampling** every answer in one of the slots, then training the last minibatch;
 * - **the tail**. Let E(u) be the end of the step that trains version u, and M(u) the longest answer in its groups.
 *   That answer begins with version u - b or a newer one, which exists from E(u - b - 1) + publish on, and must be
 *   scored before its minibatch is trained. With c = score + step / minibatches:
 *
 *       E(u) - E(u - b - 1) >= f(M(u)),  f(M) = max((b + 1) · step, publish + c + M).
 *
 *   These inequalities form b + 1 chains, one for each remainder of u. Their sum is a bound on (b + 1) times the
 *   time of the whole, in which only the sum of f(M(u)) depends on the order. As f never falls, the sum is least when the groups
 *   are sorted by their longest answers: then every M(u) is the least possible.
 *
 * @param bound versions; Infinity: any age may be trained on.
 * @param groups [steps · groupsPerBatch][answers] seconds that each answer needs.
 */
export function leastSeconds(
  setting: Setting,
  bound: number,
  groups: readonly (readonly number[])[],
): number {
  const { steps, stepSeconds, groupsPerBatch, slots, scoreSeconds, numMinibatches } = setting;
  const longest = groups.map((seconds) => Math.max(...seconds)).sort((a, b) => b - a);
  const lastPart = scoreSeconds + stepSeconds / numMinibatches;
  const training = steps * stepSeconds + scoreSeconds + longest.at(-1)!;
  const sampling = sum(groups.map((seconds) => sum(seconds))) / slots + lastPart;
  const ofSteps = Array.from({ length: steps }, (_, i) => longest[i * groupsPerBatch]!);
  return Math.max(training, sampling, tailSeconds(setting, bound, ofSteps));
}

/** @param longest [steps] seconds of the longest answer of each step. */
function tailSeconds(setting: Setting, bound: number, longest: readonly number[]): number {
  const { steps, stepSeconds, publishSeconds, scoreSeconds, numMinibatches } = setting;
  const lastPart = scoreSeconds + stepSeconds / numMinibatches;
  if (bound + 1 > steps) return longest[0]! + lastPart;
  const chains = bound + 1;
  let total = 0;
  for (const seconds of longest) {
    total += Math.max(chains * stepSeconds, publishSeconds + lastPart + seconds);
  }
  // The first step of each chain has no step before it, and after the last one of each the other chains still have steps.
  for (let i = 0; i < chains; i++) {
    total += i * stepSeconds - Math.max(i * stepSeconds, publishSeconds);
  }
  return total / chains;
}
