import { mean } from '../base/statistics.js';

/** The divergence of the tokens that one actor sampled. */
export interface ActorKl {
  readonly actor: string;
  readonly tokens: number;
  readonly kl: number; // nats a token
}

/**
 * The divergence of a step without the half of its actors that shows the most, so that the claims of one
 * actor, or of a minority, can end no run. A policy that diverges is seen by all actors.
 *
 * @returns the mean over the tokens of the others, and whom it leaves out; 0 without any actor, and no
 *   finite number as soon as one actor's is none, since then the weights are broken.
 */
export function klOfMajority(actors: readonly ActorKl[]): {
  readonly kl: number;
  readonly without: readonly string[];
} {
  if (actors.some(({ kl }) => !Number.isFinite(kl))) return { kl: NaN, without: [] };
  const sorted = actors.toSorted((a, b) => b.kl - a.kl);
  const left = sorted.splice(0, Math.floor(sorted.length / 2));
  const tokens = sorted.reduce((sum, one) => sum + one.tokens, 0);
  const sum = sorted.reduce((total, one) => total + one.tokens * one.kl, 0);
  return { kl: tokens === 0 ? 0 : sum / tokens, without: left.map(({ actor }) => actor) };
}

/** What the rollouts of one actor earned. */
export interface ActorReward {
  readonly rollouts: number;
  readonly reward: number; // mean
}

/**
 * The mean reward of a step without the half of its actors that earned the least, and without the half
 * that earned the most. A policy that collapses is seen by all actors, so `upper` falls only with most of
 * them; and `lower` rises only with most of them, so that no minority makes what follows look like a fall.
 *
 * @returns both the mean over all rollouts where there is one actor; NaN without any.
 */
export function rewardsOfMajority(actors: readonly ActorReward[]): {
  readonly upper: number;
  readonly lower: number;
} {
  const sorted = actors.toSorted((a, b) => a.reward - b.reward);
  const left = Math.floor(sorted.length / 2);
  const mean = (some: readonly ActorReward[]): number =>
    some.reduce((sum, one) => sum + one.rollouts * one.reward, 0) /
    some.reduce((sum, one) => sum + one.rollouts, 0);
  return { upper: mean(sorted.slice(left)), lower: mean(sorted.slice(0, sorted.length - left)) };
}

/** What one step shows of the health of training. */
export interface StepHealth {
  /** kl_sample_train_v2 of most actors, nats a token; no finite number once the logprobs are none. */
  readonly kl: number;
  /** Mean reward of the rollouts that the step consumed, as most actors have it at least. */
  readonly reward: number;
  /** As most actors have it at most: what later rewards are measured by. By default the same. */
  readonly lowerReward?: number;
}

export interface DivergenceLimits {
  /** Largest KL that counts as healthy, nats a token; Infinity: any finite one. */
  readonly maxKl: number;
  /** The reward has collapsed below this share of the best there was; 0: never. */
  readonly minRewardShare: number;
  /** So many unhealthy steps in a row are a divergence. Rewards are averaged over as many. */
  readonly patience: number;
}

/** What is remembered of the steps so far. */
export interface Health {
  readonly rewards: readonly number[]; // of the last steps, at most `patience`
  readonly lowerRewards: readonly number[]; // of as many
  readonly bestReward: number; // the best average of `lowerRewards`
  readonly unhealthySteps: number; // in a row, up to now
}

export const healthAtStart: Health = {
  rewards: [],
  lowerRewards: [],
  bestReward: -Infinity,
  unhealthySteps: 0,
};

/**
 * healthy: the weights may be kept. suspect: they may not. diverged: nor can a later step be hoped to
 * mend it.
 */
export type Verdict =
  | { readonly state: 'healthy' }
  | { readonly state: 'suspect' | 'diverged'; readonly reason: string };

/**
 * Whether training still converges after one more step. A step is unhealthy when its KL is above the
 * bound, or when the reward, averaged over the last `patience` steps, is below the given share of the best such
 * average before. A KL that is no finite number is a divergence at once.
 */
export function judgeStep(
  before: Health,
  step: StepHealth,
  limits: DivergenceLimits,
): { readonly health: Health; readonly verdict: Verdict } {
  const { patience } = limits;
  const rewards = [...before.rewards, step.reward].slice(-patience);
  const lowerRewards = [...before.lowerRewards, step.lowerReward ?? step.reward].slice(-patience);
  const average = mean(rewards);
  const isKnown = rewards.length === patience;
  const reason = complaint(step.kl, isKnown ? average : Infinity, before.bestReward, limits);
  const unhealthySteps = reason === undefined ? 0 : before.unhealthySteps + 1;
  const bestReward = isKnown ? Math.max(before.bestReward, mean(lowerRewards)) : before.bestReward;
  const health = { rewards, lowerRewards, bestReward, unhealthySteps };
  if (reason === undefined) return { health, verdict: { state: 'healthy' } };
  const isOver = unhealthySteps >= patience || !Number.isFinite(step.kl);
  return { health, verdict: { state: isOver ? 'diverged' : 'suspect', reason } };
}

/**
 * Whether a policy whose groups have no variance any more has lost what it could do, so that it earns
 * less than the given share of the best there was. Otherwise it has learnt what there is, or never began.
 *
 * @param reward mean of the rollouts of those groups.
 */
export function isCollapse(
  { lowerRewards, bestReward }: Health,
  reward: number,
  { minRewardShare }: DivergenceLimits,
): boolean {
  const recent = lowerRewards.length === 0 ? 0 : mean(lowerRewards);
  const best = Math.max(bestReward, recent);
  return best > 0 && reward < minRewardShare * best;
}

function complaint(
  kl: number,
  reward: number,
  best: number,
  { maxKl, minRewardShare, patience }: DivergenceLimits,
): string | undefined {
  if (!Number.isFinite(kl)) return "the policy's logprobs are not finite";
  if (kl > maxKl) {
    return `KL from the policy that sampled is ${shown(kl)} nats a token, above ${maxKl}`;
  }
  if (best > 0 && reward < minRewardShare * best) {
    const span = patience === 1 ? 'the reward' : `the reward over ${patience} steps`;
    return `${span} is ${shown(reward)}, less than ${minRewardShare} of its best, ${shown(best)}`;
  }
  return undefined;
}

function shown(value: number): string {
  return String(Number(value.toPrecision(3)));
}
