import { mean, sum } from '../base/statistics.js';
import type { AdvantageKind, ExtraTerms, Normalization } from './objective.js';

/** The kinds that depend on a single group. */
type GroupAdvantageKind = Exclude<AdvantageKind, 'batch_std'>;

/**
 * The advantages of a batch, group by group. `batch_std` divides the centred rewards of all groups by
 * their common deviation, sqrt(mean of their squares) + 1e-6. Unlike `mean_std`, it keeps the relative
 * weight of easy and hard problems, and it still removes the scale of the rewards.
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
 * - `maxrl`: (r_i - mean(r)) / mean(|r|). With rewards of 0 and 1 the expected gradient of a problem that is solved with
 *   probability p tends to that of log p as G grows, so a rare success weighs up to G - 1. Source: Tajwar et al. 2026,
 *   arXiv:2602.02710, which divides by mean(r). We divide by the mean of the absolute values, which is the same unless a
 *   reward is negative; then mean(r) can be close to 0, while ours keeps every advantage within G + 1.
 * - `reward`: r_i itself, compared with nothing: REINFORCE (Williams 1992). With rewards of 0 and 1 and
 *   the loss `cross_entropy` it is supervised training on the correct answers.
 *
 * @param rewards [G] one reward per rollout, in group order; unitless.
 * @returns [G] in the same order; all 0 for a uniform group, which trains nothing, unless they are `reward`.
 * @throws {RangeError} if the group has fewer than two rollouts or a reward is not finite.
 */
export function groupAdvantages(kind: GroupAdvantageKind, rewards: readonly number[]): number[] {
  if (rewards.length < 2) {
    throw new RangeError(`groupAdvantages: a group of ${rewards.length} has nothing to compare`);
  }
  const bad = rewards.findIndex((reward) => !Number.isFinite(reward));
  if (bad !== -1) throw new RangeError(`groupAdvantages: rewards[${bad}] is ${rewards[bad]}`);

  if (kind === 'reward') return [...rewards];
  const scale = scaleOf[kind](rewards);
  return centred(rewards).map((advantage) => advantage * scale);
}

/**
 * The kind of advantages that a step uses.
 *
 * @param maxrlUntil progress of the run at which `maxrl` gives way to `mean_centred`; undefined: never.
 * @param progress of the run before the step, 0 to 1. A resumed run computes it from its checkpoint on, so rounding
 *   must not decide.
 */
export function advantageAt(
  settings: { readonly advantage: AdvantageKind; readonly maxrlUntil?: number | undefined },
  progress: number,
): AdvantageKind {
  const { advantage, maxrlUntil = Infinity } = settings;
  return advantage === 'maxrl' && progress >= maxrlUntil - 1e-9 ? 'mean_centred' : advantage;
}

/** The others are the centred advantage times one factor of the whole group. */
const scaleOf: Record<
  Exclude<GroupAdvantageKind, 'reward'>,
  (rewards: readonly number[]) => number
> = {
  mean_centred: () => 1,
  mean_std: (rewards) => 1 / (deviation(rewards) + 1e-6),
  leave_one_out: (rewards) => rewards.length / (rewards.length - 1),
  maxrl: (rewards) => 1 / (mean(rewards.map(Math.abs)) || 1),
};

/** Rewards minus their mean; exactly 0 for equal rewards, where rounding would leave a residue. */
function centred(rewards: readonly number[]): number[] {
  const first = rewards[0]!;
  const offset = mean(rewards.map((reward) => reward - first));
  return rewards.map((reward) => reward - first - offset);
}

function deviation(rewards: readonly number[]): number {
  return Math.sqrt(mean(centred(rewards).map((advantage) => advantage * advantage)));
}

/**
 * The penalty on the reward of a long answer, applied before the comparison with its group: 0 up to
 * `freeTokens`, then linear down to -`weight` at `maxTokens`. It affects only the advantages; reported
 * rewards and the zero-variance check use the rewards as scored.
 *
 * Source: the soft overlong punishment of DAPO (Yu et al. 2025, arXiv:2503.14476).
 *
 * @param penalty weight in units of the reward; freeTokens below `maxTokens`.
 * @param tokens length of the answer.
 * @returns at most 0.
 */
export function lengthPenalty(
  { weight, freeTokens }: ExtraTerms['lengthPenalty'],
  tokens: number,
  maxTokens: number,
): number {
  const excess = Math.min(Math.max(0, tokens - freeTokens), maxTokens - freeTokens);
  return excess === 0 ? 0 : (-weight * excess) / (maxTokens - freeTokens);
}

interface NormalizationContext {
  /** Number of minibatches per optimizer step. */
  readonly numMinibatches: number;
  /** Maximum answer length in tokens. */
  readonly maxTokens: number;
}

/**
 * The factor on the advantages of each rollout of a minibatch. Backend losses are sums over tokens, so
 * this factor sets the weight of a token in an optimizer step's gradient. An optimizer step is the mean
 * of its minibatches, because each is sent before the next ones are known.
 *
 * - `none`: 1. A long rollout weighs more, and so does a bigger batch.
 * - `token`: a minibatch is a mean over its tokens (DAPO, Yu et al. 2025, arXiv:2503.14476).
 * - `sequence`: a minibatch is a mean over its rollouts, each a mean over its tokens (GRPO, Shao et
 *   al. 2024, arXiv:2402.03300): a token of a short answer weighs more.
 * - `group`: a minibatch is a mean over its groups, each a mean over its tokens.
 * - `constant`: a minibatch is a mean over its rollouts, each a sum over its tokens divided by
 *   `maxTokens`: no length is preferred (Dr. GRPO, Liu et al. 2025, arXiv:2503.20783).
 *
 * @param groups [groups][G] number of tokens of each rollout that are trained on. A rollout without any does not count
 *   in the mean over rollouts of `sequence`.
 * @returns [groups][G] one factor per rollout; 0 for one without tokens.
 */
export function advantageScales(
  normalization: Normalization,
  groups: readonly (readonly number[])[],
  { numMinibatches, maxTokens }: NormalizationContext,
): number[][] {
  const rollouts = groups.flat().length;
  const trained = groups.flat().filter((length) => length > 0).length;
  const tokens = sum(groups.flat());
  const divisor = (length: number, group: readonly number[]): number => {
    switch (normalization) {
      case 'none':
        return 1;
      case 'token':
        return tokens * numMinibatches;
      case 'sequence':
        return length * trained * numMinibatches;
      case 'group':
        return sum(group) * groups.length * numMinibatches;
      case 'constant':
        return maxTokens * rollouts * numMinibatches;
    }
  };
  return groups.map((group) =>
    group.map((length) => (length === 0 ? 0 : 1 / divisor(length, group))),
  );
}

/**
 * Whether all rollouts of a group earned exactly the same reward, so that every advantage is 0 and the
 * group trains nothing. Compares fractions over the whole group: floating-point rewards may differ in
 * the last bit, and leave-one-out peers may agree when the group does not.
 *
 * @param exactRewards [G] as `-?\d+(/\d+)?`, in lowest terms or not.
 * @throws {RangeError} if the group is empty or a reward is not a fraction.
 */
export function isUniform(exactRewards: readonly string[]): boolean {
  if (exactRewards.length === 0) throw new RangeError('isUniform: the group is empty');
  const [first, ...others] = exactRewards.map(parseFraction);
  return others.every(
    (other) => other.numerator * first!.denominator === first!.numerator * other.denominator,
  );
}

function parseFraction(text: string): { numerator: bigint; denominator: bigint } {
  const [, numerator, denominator = '1'] = /^(-?\d+)(?:\/(\d+))?$/.exec(text) ?? [];
  if (numerator === undefined || /^0+$/.test(denominator)) {
    throw new RangeError(`isUniform: ${JSON.stringify(text)} is not a fraction`);
  }
  return { numerator: BigInt(numerator), denominator: BigInt(denominator) };
}
