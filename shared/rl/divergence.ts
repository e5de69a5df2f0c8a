import { mean } from '../base/statistics.js';

/** The divergence of the tokens that one actor sampled. */
export interface ActorKl {
  readonly actor: string;
  readonly tokens: number;
  readonly kl: number; // nats per token
}

/**
 * The divergence of a step without the half of its actors with the largest values, so that the claims of
 * a minority of actors cannot end a run. If the policy diverges, all actors show it.
 *
 * @returns the mean over the tokens of the others, and the actors left out; 0 without actors; not finite
 *   if any actor's value is not finite, because then the weights are broken.
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

/** The rewards of one actor's rollouts. */
export interface ActorReward {
  readonly rollouts: number;
  readonly reward: number; // mean
}

/**
 * The mean reward of a step without the half of its actors with the lowest rewards (`upper`), and without
 * the half with the highest (`lower`). If the policy collapses, all actors show it, so `upper` falls only
 * when most actors fall. `lower` rises only when most rise, so a minority cannot fake a later collapse.
 *
 * @returns with one actor both are the mean over all rollouts; NaN without actors.
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

/** The health measurements of one step. */
interface StepHealth {
  /** kl_sample_train_v2 of most actors, nats per token; not finite if logprobs are not finite. */
  readonly kl: number;
  /** Mean reward of the step's rollouts, without the half of the actors that earned the least. */
  readonly reward: number;
  /** The same without the half that earned the most; later rewards are compared with it. Default: `reward`. */
  readonly lowerReward?: number;
}

export interface DivergenceLimits {
  /** Largest healthy KL, nats per token; Infinity: any finite one. */
  readonly maxKl: number;
  /** A reward below this share of the best earlier average is a collapse; 0: never. */
  readonly minRewardShare: number;
  /** This many unhealthy steps in a row are a divergence. Rewards are averaged over as many steps. */
  readonly patience: number;
}

/** The state kept between steps. */
interface Health {
  readonly rewards: readonly number[]; // of the last steps, at most `patience`
  readonly lowerRewards: readonly number[]; // of the same steps
  readonly bestReward: number; // the best average of `lowerRewards`
  readonly unhealthySteps: number; // in a row, up to the last step
}

export const healthAtStart: Health = {
  rewards: [],
  lowerRewards: [],
  bestReward: -Infinity,
  unhealthySteps: 0,
};

/**
 * healthy: the weights may be kept. suspect: they may not. diverged: they may not, and training stops
 * because later steps are not expected to recover.
 */
export type Verdict =
  | { readonly state: 'healthy' }
  | { readonly state: 'suspect' | 'diverged'; readonly reason: string };

/**
 * Whether training still converges after one more step. A step is unhealthy when its KL is above the
 * bound, or when the reward, averaged over the last `patience` steps, is below the given share of the best earlier
 * average. A KL that is not finite is a divergence at once.
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
 * Whether a policy whose groups no longer have variance has collapsed: it earns less than the given share
 * of the best earlier reward. Otherwise it has learned everything, or never learned anything.
 *
 * @param reward mean over the rollouts of those groups.
 */
export function isCollapse(
  { lowerRewards, bestReward }: Health,
  reward: number,
  { minRewardShare }: DivergenceLimits,
): boolean {
  const recent = lowerRewards.length === 0 ? 0 : mean(lowerRewards);
  const best = Math.max(bestReward, recent);
  return isFallen(reward, best, minRewardShare);
}

/** @param share 0: never, even if rewards may be negative. */
function isFallen(reward: number, best: number, share: number): boolean {
  return share > 0 && best > 0 && reward < share * best;
}

function complaint(
  kl: number,
  reward: number,
  best: number,
  { maxKl, minRewardShare, patience }: DivergenceLimits,
): string | undefined {
  if (!Number.isFinite(kl)) return "the policy's logprobs are not finite";
  if (kl > maxKl) {
    return `KL from the policy that sampled is ${shown(kl)} nats per token, above ${maxKl}`;
  }
  if (isFallen(reward, best, minRewardShare)) {
    const span = patience === 1 ? 'the reward' : `the reward over ${patience} steps`;
    return `${span} is ${shown(reward)}, less than ${minRewardShare} of its best, ${shown(best)}`;
  }
  return undefined;
}

function shown(value: number): string {
  return String(Number(value.toPrecision(3)));
}
