import { mean } from '../base/statistics.js';
import type { AdvantageKind } from './objective.js';

/** The kinds that know of no other group. */
export type GroupAdvantageKind = Exclude<AdvantageKind, 'batch_std'>;

/**
 * The advantages of a batch: those of its groups, each for itself, or for `batch_std` the centred
 * ones of all groups divided by their common deviation, sqrt(mean of their squares) + 1e-6. So an
 * easy and a hard problem keep the same weight, which `mean_std` takes away, and the scale of the
 * rewards drops out all the same.
 *
 * Source of `batch_std`: REINFORCE++-baseline (Hu et al. 2025, arXiv:2501.03262); AReaL's default.
 *
 * @param groups [groups][G] rewards.
 * @returns [groups][G] in the same order.
 * @throws {RangeError} as `groupAdvantages`.
 */
export function batchAdvantages(
  kind: AdvantageKind,
  groups: readonly (readonly number[])[],
): number[][] {
  if (kind !== 'batch_std') return groups.map((rewards) => groupAdvantages(kind, rewards));
  const centredGroups = groups.map((rewards) => groupAdvantages('mean_centred', rewards));
  const squares = centredGroups.flat().map((advantage) => advantage * advantage);
  const scale = 1 / (Math.sqrt(mean(squares)) + 1e-6);
  return centredGroups.map((advantages) => advantages.map((advantage) => advantage * scale));
}

/**
 * Group-relative advantages: each rollout is compared with its siblings from the same prompt.
 *
 * - `mean_centred`: r_i - mean(r). GRPO (Shao et al. 2024, arXiv:2402.03300) minus its division by
 *   the deviation, as in Dr. GRPO (Liu et al. 2025, arXiv:2503.20783).
 * - `mean_std`: (r_i - mean(r)) / (std(r) + 1e-6), the population deviation, as in TuFT's guide.
 * - `leave_one_out`: r_i - the mean of the others (RLOO, Ahmadian et al. 2024, arXiv:2402.14740);
 *   the centred advantage times G / (G - 1).
 *
 * @param rewards [G] one reward per rollout, in group order; unitless.
 * @returns [G] in the same order; all 0 for a uniform group, which trains nothing.
 * @throws {RangeError} if the group has fewer than two rollouts or a reward is not finite.
 */
export function groupAdvantages(kind: GroupAdvantageKind, rewards: readonly number[]): number[] {
  if (rewards.length < 2) {
    throw new RangeError(`groupAdvantages: a group of ${rewards.length} has nothing to compare`);
  }
  const bad = rewards.findIndex((reward) => !Number.isFinite(reward));
  if (bad !== -1) throw new RangeError(`groupAdvantages: rewards[${bad}] is ${rewards[bad]}`);

  const scale = scaleOf[kind](rewards);
  return centred(rewards).map((advantage) => advantage * scale);
}

/** Every kind is the centred advantage times one factor of the whole group. */
const scaleOf: Record<GroupAdvantageKind, (rewards: readonly number[]) => number> = {
  mean_centred: () => 1,
  mean_std: (rewards) => 1 / (deviation(rewards) + 1e-6),
  leave_one_out: (rewards) => rewards.length / (rewards.length - 1),
};

/** Exactly 0 for equal rewards, where a rounded mean would leave a residue to be scaled up. */
function centred(rewards: readonly number[]): number[] {
  const first = rewards[0]!;
  const offset = mean(rewards.map((reward) => reward - first));
  return rewards.map((reward) => reward - first - offset);
}

function deviation(rewards: readonly number[]): number {
  return Math.sqrt(mean(centred(rewards).map((advantage) => advantage * advantage)));
}
