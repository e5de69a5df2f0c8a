import type { Backlog } from '../../../shared/broker/backlog.js';
import type { ActorLease } from '../../../shared/wire/actor-lease.js';
import type { LeaderLease } from '../../../shared/wire/ledger.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';
import {
  actorReport,
  engineReports,
  type ActorReport,
  type EngineReport,
} from '../../existing-run/actor-report.js';
import { awaitingOf } from '../../existing-run/run-state.js';
import { awaitedBy, waitsOver, waitText, type WaitShares } from '../../existing-run/waits.js';
import type { History } from './history.js';

/** A queue between two services. */
export interface QueueNow {
  readonly perSecond: number | undefined; // messages published; unknown at the first snapshot
  readonly waiting: number; // not delivered yet
  readonly inHands: number; // delivered and not settled
  readonly oldestAgeSeconds: number;
}

/** The messages that move through the run now. */
export interface Flow {
  readonly tickets: QueueNow;
  readonly rollouts: QueueNow;
  readonly scored: QueueNow;
  /** Groups that are trained or dropped, and stay in the queue of scored groups until a checkpoint. */
  readonly awaitingCheckpoint: number;
  readonly deadLetters: number;
  readonly version: number | undefined; // the newest that is published
  readonly versionsPerMinute: number | undefined;
  readonly actors: readonly ActorNow[];
  readonly engines: readonly EngineReport[]; // the servers that the actors sample with
}

/** Window of the rates: long enough to be steady, short enough to be current. */
export const flowWindowMs = 15_000;

/**
 * @param snapshots rising in time, at least one; rates are between the first and the last.
 * @param metrics of the newest step.
 */
export function flowOf(
  snapshots: readonly Snapshot[],
  metrics: Readonly<Record<string, number>> = {},
): Flow {
  const [first, last] = [snapshots[0]!, snapshots.at(-1)!];
  const seconds = (last.at - first.at) / 1_000;
  const { streams, consumers } = last.backlog;
  const queue = (stream: 'tickets' | 'rollouts' | 'scored'): QueueNow => {
    const mine = Object.entries(consumers).filter(([source]) => source.split('.')[0] === stream);
    const sum = (key: 'pending' | 'ackPending') =>
      mine.reduce((total, [, consumer]) => total + consumer[key], 0);
    return {
      perSecond: rate(streams[stream].published - first.backlog.streams[stream].published, seconds),
      waiting: sum('pending'),
      inHands: sum('ackPending'),
      oldestAgeSeconds: streams[stream].oldestAgeSeconds,
    };
  };
  const scored = queue('scored');
  const awaitingCheckpoint = awaitingOf(consumers['scored.train'].ackPending, metrics);
  const versions = (last.manifest?.version ?? NaN) - (first.manifest?.version ?? NaN);
  return {
    tickets: queue('tickets'),
    rollouts: queue('rollouts'),
    scored: { ...scored, inHands: scored.inHands - awaitingCheckpoint },
    awaitingCheckpoint,
    deadLetters: streams.dead.messages,
    version: last.manifest?.version,
    versionsPerMinute: rate(60 * versions, seconds),
    actors: actorsNow(snapshots),
    engines: engineReports(last.leasesSeen, last.at),
  };
}

/** Undefined at the first snapshot, and after a counter restarted. */
function rate(count: number, seconds: number): number | undefined {
  return seconds > 0 && count >= 0 ? count / seconds : undefined;
}

/** A snapshot of the run. */
export interface Snapshot {
  readonly at: number; // ms since the epoch
  readonly backlog: Backlog;
  readonly leases: readonly ActorLease[]; // with the times of the actors' clocks
  readonly leasesSeen: readonly ActorLease[]; // the same, with the times at which this process saw them renewed
  readonly manifest: PolicyManifest | undefined;
  readonly leader: LeaderLease | undefined;
}

/** An actor by its newest lease, and what it did since an earlier one. */
interface ActorNow extends ActorReport {
  readonly groupsPerSecond: number | undefined; // unknown until its second lease
  /** Shares of the time without sampling, by what the actor waited for. */
  readonly idle: Readonly<Record<IdleCause, number>> | undefined;
}

type IdleCause = keyof ActorLease['idleSeconds'];

/** An actor that has been silent for longer is left out. */
const forgottenAfterSeconds = 120;

/** @param snapshots rising in time; speeds are between an actor's first lease in them and its last. */
function actorsNow(snapshots: readonly Snapshot[]): ActorNow[] {
  const { at, leases, leasesSeen, manifest } = snapshots.at(-1)!;
  return leases
    .map((lease, i) => {
      const first = snapshots
        .flatMap((snapshot) => snapshot.leases)
        .find((other) => other.actor === lease.actor && isSameProcess(other, lease));
      return { ...actorReport(leasesSeen[i]!, manifest, at), ...speed(first ?? lease, lease) };
    })
    .filter(({ seenSecondsAgo }) => seenSecondsAgo < forgottenAfterSeconds)
    .sort((a, b) => a.actor.localeCompare(b.actor, 'en', { numeric: true }));
}

/** Whether both leases are of one process: its counters only rise until it restarts. */
function isSameProcess(earlier: ActorLease, later: ActorLease): boolean {
  return earlier.groups <= later.groups && earlier.idleSeconds.ticket <= later.idleSeconds.ticket;
}

function speed(first: ActorLease, last: ActorLease): Pick<ActorNow, 'groupsPerSecond' | 'idle'> {
  const seconds = (last.lastSeenAt - first.lastSeenAt) / 1_000;
  if (seconds <= 0) return { groupsPerSecond: undefined, idle: undefined };
  const share = (cause: IdleCause) =>
    Math.min(1, Math.max(0, last.idleSeconds[cause] - first.idleSeconds[cause]) / seconds);
  return {
    groupsPerSecond: (last.groups - first.groups) / seconds,
    idle: { ticket: share('ticket'), policy: share('policy'), publish: share('publish') },
  };
}

/** A part of the run, the share of time that it waited, and the causes. */
export interface Waiting {
  readonly who: string;
  readonly share: number; // of the time
  readonly causes: readonly { readonly share: number; readonly what: string }[]; // largest first
}

/** The steps over which waiting is averaged: the time between the first and the last is that of ten. */
const recentSteps = 11;

/** A smaller share is not mentioned. */
const noticeable = 0.005;

/** How the learner spent its last steps; undefined before there are two. */
export function learnerWaiting({ steps }: Pick<History, 'steps'>): Waiting | undefined {
  const waits = waitsOver(steps.slice(-recentSteps));
  return waits && waiting('learner', waits.learner);
}

/** How each actor spent the last seconds, where its leases show it. */
export function actorsWaiting({ actors }: Pick<Flow, 'actors'>): Waiting[] {
  return actors.flatMap(({ actor, idle }) => (idle === undefined ? [] : [waiting(actor, idle)]));
}

/** The bottleneck of the run, in a sentence or two. */
export function bottleneck({ steps }: Pick<History, 'steps'>): string {
  const waits = waitsOver(steps.slice(-recentSteps));
  if (waits === undefined) return 'Not known yet.';
  const text = waitText(waits);
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function waiting(who: string, shares: WaitShares): Waiting {
  const causes = Object.entries(shares)
    .map(([cause, share]) => ({ share, what: awaitedBy[cause] ?? cause }))
    .filter(({ share }) => share >= noticeable)
    .sort((a, b) => b.share - a.share);
  const share = Object.values(shares).reduce((total, each) => total + each, 0);
  return { who, share: Math.min(1, share), causes };
}
