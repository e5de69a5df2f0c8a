import { Counter, Gauge } from 'prom-client';
import { ksDistance } from '../shared/rl/length-bias.js';
import type { ScoredGroup } from '../shared/wire/scored-group.js';

const groupOutcomes = new Counter({
  name: 'rl_group_outcome_total',
  help: 'Scored groups by whether all, none or some of their rollouts are correct',
  labelNames: ['kind'],
});

const lengthKsDistance = new Gauge({
  name: 'rl_length_ks_distance',
  help: 'Kolmogorov-Smirnov distance between completion lengths as admitted and as trained',
});

/** Sums over the groups that were scored since the last step, those without variance included. */
interface Sums {
  groups: number;
  rollouts: number;
  tokens: number;
  correct: number;
  formatted: number;
  reward: number;
  negativeLogprobs: number;
  mixed: number;
  allGood: number;
  allBad: number;
}

/**
 * How the policy does on the problems that it is trained on: rates over every scored group, since
 * those that are trained on are chosen for their variance.
 */
export class Tally {
  #sums = noSums();
  readonly #admittedLengths = new Map<number, number>();
  readonly #trainedLengths = new Map<number, number>();

  /** @param isTrainable whether the group was admitted, and not skipped for its uniform rewards. */
  scored({ group, scores }: ScoredGroup, isTrainable: boolean): void {
    const sums = this.#sums;
    sums.groups += 1;
    sums.rollouts += scores.length;
    for (const { tokens, behaviorLogprobs } of group.rollouts) {
      sums.tokens += tokens.length;
      for (const logprob of behaviorLogprobs) sums.negativeLogprobs -= logprob;
      if (isTrainable) count(this.#admittedLengths, tokens.length);
    }
    for (const score of scores) {
      sums.reward += score.reward;
      if (score.isCorrect) sums.correct += 1;
      if (score.hasFormat) sums.formatted += 1;
    }
    const correct = scores.filter(({ isCorrect }) => isCorrect).length;
    const kind = correct === scores.length ? 'all_good' : correct === 0 ? 'all_bad' : 'mixed';
    sums[kind === 'mixed' ? 'mixed' : kind === 'all_good' ? 'allGood' : 'allBad'] += 1;
    groupOutcomes.inc({ kind });
  }

  trained({ group }: ScoredGroup): void {
    for (const { tokens } of group.rollouts) count(this.#trainedLengths, tokens.length);
  }

  /** The rates since the last call, by the names of `metrics.jsonl`; then it starts afresh. */
  take(): Record<string, number> {
    const sums = this.#sums;
    this.#sums = noSums();
    const distance = ksDistance(this.#admittedLengths, this.#trainedLengths);
    lengthKsDistance.set(distance);
    const counts = { 'scored/groups': sums.groups, 'scored/rollouts': sums.rollouts };
    const whole = { ...counts, 'scored/tokens': sums.tokens, length_ks_distance: distance };
    if (sums.groups === 0) return whole; // redelivered groups alone made this step
    return {
      ...whole,
      'env/all/correct': sums.correct / sums.rollouts,
      'env/all/format': sums.formatted / sums.rollouts,
      'env/all/reward/total': sums.reward / sums.rollouts,
      'by_group/frac_mixed': sums.mixed / sums.groups,
      'by_group/frac_all_good': sums.allGood / sums.groups,
      'by_group/frac_all_bad': sums.allBad / sums.groups,
      entropy: sums.negativeLogprobs / sums.tokens,
      ac_tokens_per_turn: sums.tokens / sums.rollouts,
    };
  }
}

function noSums(): Sums {
  return {
    groups: 0,
    rollouts: 0,
    tokens: 0,
    correct: 0,
    formatted: 0,
    reward: 0,
    negativeLogprobs: 0,
    mixed: 0,
    allGood: 0,
    allBad: 0,
  };
}

function count(lengths: Map<number, number>, length: number): void {
  lengths.set(length, (lengths.get(length) ?? 0) + 1);
}
