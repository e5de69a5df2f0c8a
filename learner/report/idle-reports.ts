import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { IdleCause, IdleClock } from '../step/idle-clock.js';

export const idleReportEveryMs = 60_000;

/** The share of a period without work from which on it is worth a line. */
const reportedShare = 0.9;

const waitsFor: Readonly<Record<IdleCause, string>> = {
  groups: 'scored groups',
  window: 'an older group that the step must have',
  version: 'a version to reach the actors',
};

/** Logs what the learner waits for while it has no work for the backend, with the state of the run that shows where it is stuck. */
export class IdleReports {
  #before: IdleClock['seconds'];

  constructor(
    private readonly idle: Pick<IdleClock, 'seconds'>,
    private readonly metrics: () => Readonly<Record<string, number>>,
    private readonly log: Logger,
  ) {
    this.#before = idle.seconds;
  }

  /** Call it every `idleReportEveryMs`. */
  report(): void {
    const before = this.#before;
    const now = (this.#before = this.idle.seconds);
    const waited = (Object.keys(waitsFor) as IdleCause[])
      .map((cause) => ({ cause, seconds: now[cause] - before[cause] }))
      .sort((a, b) => b.seconds - a.seconds);
    const seconds = waited.reduce((sum, each) => sum + each.seconds, 0);
    if (1_000 * seconds < reportedShare * idleReportEveryMs) return;
    const state = this.metrics();
    this.log.warn(
      {
        waitsFor: waitsFor[waited[0]!.cause],
        liveActors: state['actors/live'],
        tickets: state['stream_depth/tickets'],
        rollouts: state['stream_depth/rollouts'],
        scored: state['stream_depth/scored'],
      },
      'the backend had almost no work for a minute',
    );
  }
}
