import { awaitingOf } from '../../status/report.js';
import { actorsNow, type ActorNow } from './actors.js';
import type { Look } from './look.js';

/** A queue between two services. */
export interface QueueNow {
  readonly perSecond: number | undefined; // messages that came in; unknown at the first look
  readonly waiting: number; // nobody has them yet
  readonly inHands: number; // delivered, and not at its end
  readonly oldestAgeSeconds: number;
}

/** What moves through the run now. */
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
}

/** Rates are over this much time: calm, and yet up to date. */
export const flowWindowMs = 15_000;

/**
 * @param looks rising in time, at least one; rates are between the first and the last.
 * @param metrics of the newest step.
 */
export function flowOf(
  looks: readonly Look[],
  metrics: Readonly<Record<string, number>> = {},
): Flow {
  const [first, last] = [looks[0]!, looks.at(-1)!];
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
    actors: actorsNow(looks),
  };
}

/** Nothing where it cannot be told: at the first look, or after something began anew. */
function rate(count: number, seconds: number): number | undefined {
  return seconds > 0 && count >= 0 ? count / seconds : undefined;
}
