import { mean, sum } from '../../shared/base/statistics.js';
import type { StepRow } from '../read-journal.js';
import { percent } from '../up/summary.js';

const learnerCauses = {
  groups: 'scored groups',
  window: 'an older group, which would otherwise become too stale',
  version: 'a version to reach the actors',
};

const actorCauses = {
  ticket: 'tickets',
  policy: 'a policy version that is new enough',
  publish: 'space in the queue of rollouts',
};

/** By cause of waiting, as in the names of metrics: what is waited for. */
export const awaitedBy: Readonly<Record<string, string>> = { ...learnerCauses, ...actorCauses };

/** Shares of wall time in which a part of the run did nothing, by what it waited for. */
export type WaitShares = Readonly<Record<string, number>>;

/** How long the learner and the actors waited, over the newest steps. */
export interface Waits {
  readonly seconds: number; // of the steps
  readonly learner: WaitShares; // groups, window, version
  readonly actors: WaitShares; // ticket, policy, publish: the mean over the live ones
}

/**
 * @param steps oldest first.
 * @returns undefined for fewer than two steps, since there is no time between them.
 */
export function waitsOver(steps: readonly StepRow[]): Waits | undefined {
  const [first, ...later] = steps;
  const last = later.at(-1);
  if (first === undefined || last === undefined || last.at <= first.at) return undefined;
  // A step's own duration if it has one: between two steps the run may have been down.
  const seconds = later.reduce(
    (sum, { at, metrics }, i) => sum + (metrics['seconds'] ?? (at - steps[i]!.at) / 1_000),
    0,
  );
  // On examples the actors only evaluate, so that they wait shows nothing.
  const isOnExamples = last.metrics['sft/nll'] !== undefined;
  const live = isOnExamples ? 0 : mean(steps.map(({ metrics }) => metrics['actors/live'] ?? 0));
  return {
    seconds,
    learner: shares('idle/', learnerCauses, seconds, () => true),
    actors:
      live === 0
        ? {}
        : shares('actors/idle_seconds/', actorCauses, seconds * live, isPossibleOfActors),
  };

  function shares(
    prefix: string,
    causes: object,
    whole: number,
    isPossible: (rise: Rise) => boolean,
  ): WaitShares {
    const entries = Object.keys(causes).map((cause): [string, number] => {
      const rises = risesOf(steps, prefix + cause).filter(isPossible);
      return [cause, Math.min(1, sum(rises.map(({ by }) => by)) / whole)];
    });
    return Object.fromEntries(entries);
  }
}

/** What a counter rose by until a step. */
interface Rise {
  readonly by: number;
  readonly seconds: number; // since the value changed before
  readonly live: number; // actors, the more of the two steps
}

/** Counters restart with their process, so only what rises between two steps is counted. */
function risesOf(steps: readonly StepRow[], name: string): Rise[] {
  const rises: Rise[] = [];
  let last: { readonly value: number; readonly since: number; readonly live: number } | undefined;
  for (const { at, metrics } of steps) {
    const value = metrics[name];
    if (value === undefined) continue;
    const live = metrics['actors/live'] ?? 0;
    if (last !== undefined && value > last.value) {
      const seconds = (at - last.since) / 1_000;
      rises.push({ by: value - last.value, seconds, live: Math.max(live, last.live) });
    }
    last = { value, since: last?.value === value ? last.since : at, live };
  }
  return rises;
}

/**
 * Whether the actors could wait for so long. The seconds are a sum over the actors heard of, so one that is heard of
 * again brings back all that it ever waited. Twice the time is allowed because an actor reports every few seconds.
 */
function isPossibleOfActors({ by, seconds, live }: Rise): boolean {
  return by <= 2 * seconds * live;
}

/** The slowest part and the remedy, in a sentence or two. */
export function waitText({ learner, actors }: Waits): string {
  const [learnerCause, learnerShare] = largest(learner);
  const [actorCause, actorShare] = largest(actors);
  const parts: string[] = [];
  if (learnerShare >= noticeableShare) {
    parts.push(`the learner waits ${howLong(learnerShare, learnerCause)}`);
  }
  if (actorShare >= noticeableShare) {
    parts.push(`the actors wait ${howLong(actorShare, actorCause)}`);
  }
  if (parts.length === 0) return 'no part waits for long';
  return `${parts.join('; ')}: ${remedy(
    learnerShare >= noticeableShare ? learnerCause : undefined,
    actorShare >= noticeableShare ? actorCause : undefined,
  )}`;
}

/** A smaller share of the time is not a bottleneck. */
const noticeableShare = 0.05;

function howLong(share: number, cause: string): string {
  return `${percent(share, 0)} of the time for ${awaitedBy[cause] ?? cause}`;
}

function remedy(learner: string | undefined, actor: string | undefined): string {
  if (actor === 'publish') return 'the reward service or NATS is the slowest part';
  if (learner === 'version' || actor === 'policy') return 'publishing versions is the slowest part';
  if (learner === undefined) return 'the learner is the slowest part; fewer actors would be enough';
  if (learner === 'window')
    return 'long answers hold it up; a larger --max-steps-off-policy lets others go first';
  if (actor === 'ticket') {
    return 'they work in turns; a larger --max-steps-off-policy lets them work at the same time';
  }
  return 'sampling is the slowest part; more actors would help';
}

function largest(shares: WaitShares): [cause: string, share: number] {
  return Object.entries(shares).reduce((a, b) => (b[1] > a[1] ? b : a), ['', 0]);
}
