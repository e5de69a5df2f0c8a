import { Counter } from 'prom-client';
import { isUniform } from '../../shared/rl/advantages.js';
import { type ActorReward, rewardsOfMajority } from '../../shared/rl/divergence.js';
import { ksDistance } from '../../shared/rl/off-policy.js';
import { countDroppedGroup, countWastedTokens } from '../../shared/service/telemetry/drops.js';
import { type Rollout, tokenCount } from '../../shared/wire/rollout-group.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import { type Stat, StatTable } from '../report/stat-table.js';

const groupOutcomes = new Counter({
  name: 'rl_group_outcome_total',
  help: 'Scored groups by whether all, none or some of their rollouts are correct.',
  labelNames: ['kind'],
});

/** Not the same as all good or all bad: shaping gives wrong answers different rewards. */
const zeroVarianceGroups = new Counter({
  name: 'rl_zero_variance_groups_total',
  help: 'Scored groups whose rewards are all equal, which teach nothing.',
});

const exportedStats = new StatTable<{ sums: Sums; lengthDistance: number }>([
  {
    jsonl: 'env/all/reward/total',
    prometheus: 'rl_reward',
    help: "Mean reward of the last step's answers, including those of skipped groups.",
    // A gap in a curve is better than NaN.
    of: ({ sums: { reward, rollouts } }) => (rollouts > 0 ? reward / rollouts : undefined),
  },
  solvedShare('all', (sums) => sums),
  solvedShare('new', (sums) => sums.new),
  solvedShare('rehearsal', (sums) => sums.rehearsed),
  {
    jsonl: 'env/all/cut',
    prometheus: 'rl_rollouts_cut_share',
    help: "Share of the last step's answers that their actor cut after --rollout-seconds.",
    of: ({ sums: { cut, rollouts } }) => (rollouts > 0 ? cut / rollouts : undefined),
  },
  {
    jsonl: 'env/all/truncated',
    prometheus: 'rl_truncated_fraction',
    help: "Share of the last step's answers that were cut at the longest length, including those of skipped groups.",
    of: ({ sums: { truncated, rollouts } }) => (rollouts > 0 ? truncated / rollouts : undefined),
  },
  {
    jsonl: 'length_ks_distance',
    prometheus: 'rl_length_ks_distance',
    help: 'Kolmogorov-Smirnov distance between the lengths of the newest answers and of those among them that were used.',
    of: ({ lengthDistance }) => lengthDistance,
  },
]);

/** The share of correct answers to problems of this kind; absent in a step that has none of them. */
function solvedShare(
  kind: 'all' | 'new' | 'rehearsal',
  of: (sums: Sums) => Pick<Share, 'rollouts' | 'correct'>,
): Stat<{ sums: Sums }> {
  return {
    jsonl: `env/${kind}/correct`,
    prometheus: 'rl_solved_share',
    help: "Share of the last step's answers that are correct, including those of skipped groups: to all problems and, if some are rehearsed, to the new and to the rehearsed ones.",
    by: { kind },
    of: ({ sums }) => {
      const { correct, rollouts } = of(sums);
      return rollouts > 0 ? correct / rollouts : undefined;
    },
  };
}

/** Number of newest attempts at tickets that the length distance is taken over. */
const lengthWindow = 1_024;

/** An attempt at a ticket that has ended. */
interface EndedAttempt {
  readonly lengths: readonly number[]; // [G] tokens of its answers; of one that was cut, all that it could have had
  /** [G] tokens that were trained on, or skipped for having no variance; [] if none were. */
  readonly usedLengths: readonly number[];
}

/** Sums over the groups that a step consumed, both trained and skipped. */
interface Sums {
  groups: number;
  rollouts: number;
  tokens: number;
  cut: number; // rollouts that ended after a time
  correct: number;
  formatted: number;
  truncated: number;
  reward: number;
  negativeLogprobs: number;
  mixed: number;
  allGood: number;
  allBad: number;
  fresh: Share; // groups of the next problems of the epoch
  replayed: Share; // groups of problems that were tried before
  new: Share; // groups of problems of a new kind, if the data also has rehearsed ones
  rehearsed: Share;
  byActor: Map<string, ActorReward>;
}

interface Share {
  groups: number;
  mixed: number;
  rollouts: number;
  correct: number;
}

/**
 * Success rates of the policy on its training problems, over every group that a step has consumed.
 * Skipped groups count too, since the trained groups alone are selected for their variance. A group
 * counts once: when the step that trained on it is confirmed, or when it is skipped.
 */
export class GroupStats {
  readonly #isReplay: (ticket: Ticket) => boolean;
  readonly #isRehearsed: (ticket: Ticket) => boolean | undefined;
  #sums = noSums();
  readonly #ended: EndedAttempt[] = []; // at most `lengthWindow`, oldest first

  /**
   * @param isReplay whether a ticket repeats a problem that was tried before.
   * @param isRehearsed whether its problem is one that is only rehearsed; undefined if all are of one kind.
   */
  constructor(
    isReplay: (ticket: Ticket) => boolean = () => false,
    isRehearsed: (ticket: Ticket) => boolean | undefined = () => undefined,
  ) {
    this.#isReplay = isReplay;
    this.#isRehearsed = isRehearsed;
  }

  /** Counts a group that was trained on, or skipped because it has no variance. */
  consumed(scored: ScoredGroup): void {
    this.#end({ lengths: fullLengthsOf(scored), usedLengths: lengthsOf(scored) });
    this.#add(scored);
  }

  /** Counts a group that became too old in the learner. */
  refused(scored: ScoredGroup): void {
    this.#end({ lengths: fullLengthsOf(scored), usedLengths: [] });
  }

  /**
   * Counts an attempt that was given up because it took too long. The lengths of its answers are unknown;
   * they count as the longest, since those are the slowest.
   */
  givenUp({ groupSize, samplingParams }: Pick<Ticket, 'groupSize' | 'samplingParams'>): void {
    const lengths = Array.from({ length: groupSize }, () => samplingParams.maxTokens);
    this.#end({ lengths, usedLengths: [] });
  }

  /** Returns the rates since the last call, by their names in `metrics.jsonl`, and resets the sums. */
  take(): Record<string, number> {
    const sums = this.#sums;
    this.#sums = noSums();
    const counts = (of: 'lengths' | 'usedLengths') =>
      countsOf(this.#ended.flatMap((attempt) => attempt[of]));
    const lengthDistance = ksDistance(counts('lengths'), counts('usedLengths'));
    const { upper, lower } = rewardsOfMajority([...sums.byActor.values()]);
    return {
      ...exportedStats.record({ sums, lengthDistance }),
      'env/all/format': sums.formatted / sums.rollouts,
      'env/all/reward/upper': upper,
      'env/all/reward/lower': lower,
      'by_group/frac_mixed': sums.mixed / sums.groups,
      'by_group/frac_all_good': sums.allGood / sums.groups,
      'by_group/frac_all_bad': sums.allBad / sums.groups,
      ...replayRates(sums),
      entropy: sums.negativeLogprobs / sums.tokens,
      ac_tokens_per_turn: sums.tokens / sums.rollouts,
      'scored/groups': sums.groups,
      'scored/rollouts': sums.rollouts,
      'scored/tokens': sums.tokens,
    };
  }

  #end(attempt: EndedAttempt): void {
    this.#ended.push(attempt);
    if (this.#ended.length > lengthWindow) this.#ended.shift();
  }

  #add({ group, scores }: ScoredGroup): void {
    const sums = this.#sums;
    sums.groups += 1;
    sums.rollouts += scores.length;
    const { maxTokens } = group.ticket.samplingParams;
    for (const rollout of group.rollouts) {
      const { tokens, behaviorLogprobs, stopReason } = rollout;
      sums.tokens += tokens.length;
      if (isCut(rollout, maxTokens)) sums.cut += 1;
      else if (stopReason === 'length') sums.truncated += 1;
      for (const logprob of behaviorLogprobs) sums.negativeLogprobs -= logprob;
    }
    let correct = 0;
    const before = sums.reward;
    for (const { reward, isCorrect, hasFormat } of scores) {
      sums.reward += reward;
      if (hasFormat) sums.formatted += 1;
      if (isCorrect) correct += 1;
    }
    addReward(sums.byActor, group.actor, scores.length, sums.reward - before);
    sums.correct += correct;
    const kind = correct === scores.length ? 'all_good' : correct === 0 ? 'all_bad' : 'mixed';
    sums[outcomeKeys[kind]] += 1;
    const shares = [sums[this.#isReplay(group.ticket) ? 'replayed' : 'fresh']];
    const isRehearsed = this.#isRehearsed(group.ticket);
    if (isRehearsed !== undefined) shares.push(sums[isRehearsed ? 'rehearsed' : 'new']);
    for (const share of shares) {
      share.groups += 1;
      share.rollouts += scores.length;
      share.correct += correct;
      if (kind === 'mixed') share.mixed += 1;
    }
    groupOutcomes.inc({ kind });
    if (isUniform(scores.map(({ exactReward }) => exactReward))) zeroVarianceGroups.inc();
  }
}

const outcomeKeys = { all_good: 'allGood', all_bad: 'allBad', mixed: 'mixed' } as const;

function noSums(): Sums {
  return {
    groups: 0,
    rollouts: 0,
    tokens: 0,
    cut: 0,
    correct: 0,
    formatted: 0,
    truncated: 0,
    reward: 0,
    negativeLogprobs: 0,
    mixed: 0,
    allGood: 0,
    allBad: 0,
    fresh: emptyShare(),
    replayed: emptyShare(),
    new: emptyShare(),
    rehearsed: emptyShare(),
    byActor: new Map(),
  };
}

function emptyShare(): Share {
  return { groups: 0, mixed: 0, rollouts: 0, correct: 0 };
}

function addReward(
  byActor: Map<string, ActorReward>,
  actor: string,
  more: number, // rollouts
  sum: number, // of their rewards
): void {
  const { rollouts, reward } = byActor.get(actor) ?? { rollouts: 0, reward: 0 };
  const all = rollouts + more;
  byActor.set(actor, { rollouts: all, reward: (rollouts * reward + sum) / all });
}

/** Rates of replayed and fresh problems; empty if no problem was replayed. */
function replayRates({ fresh, replayed }: Sums): Record<string, number> {
  if (replayed.groups === 0) return {};
  return {
    'replayed/group_share': replayed.groups / (fresh.groups + replayed.groups),
    'replayed/frac_mixed': replayed.mixed / replayed.groups,
    'fresh/frac_mixed': fresh.mixed / fresh.groups,
    'fresh/correct': fresh.correct / fresh.rollouts,
  };
}

function lengthsOf({ group }: ScoredGroup): number[] {
  return group.rollouts.map(({ tokens }) => tokens.length);
}

/** The lengths, but an answer that was cut after a time counts as the longest: its full length is unknown. */
function fullLengthsOf({ group: { rollouts, ticket } }: ScoredGroup): number[] {
  const { maxTokens } = ticket.samplingParams;
  return rollouts.map((rollout) => (isCut(rollout, maxTokens) ? maxTokens : rollout.tokens.length));
}

/** Whether an answer ended neither by itself nor at the limit of its tokens, but after a time. */
function isCut({ stopReason, tokens }: Rollout, maxTokens: number): boolean {
  return stopReason === 'length' && tokens.length < maxTokens;
}

function countsOf(lengths: readonly number[]): Map<number, number> {
  const counts = new Map<number, number>();
  for (const length of lengths) {
    counts.set(length, (counts.get(length) ?? 0) + 1);
  }
  return counts;
}

/** Counts a group that will not be trained on, and its wasted tokens. */
export function countDrop(scored: ScoredGroup, stage: string, reason: string): void {
  countDroppedGroup(stage, reason);
  countWastedTokens(reason, tokenCount(scored.group));
}
