import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter } from 'prom-client';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { StepEvent } from './history.js';
import type { IdleClock } from '../step/idle-clock.js';
import { StatTable } from './stat-table.js';

const stepsTrained = new Counter({
  name: 'rl_steps_total',
  help: 'Steps that the backend has confirmed; each trains one batch and makes one version.',
});
const optimizerSteps = new Counter({
  name: 'rl_optimizer_steps_total',
  help: 'Optimizer steps that the backend has confirmed, several to a step if it has substeps.',
});

/** Recorded with each step, and whenever the lag changes in between. */
export const publishLagStats = new StatTable<number>([
  {
    jsonl: 'publish_lag',
    prometheus: 'rl_publish_lag_steps',
    help: 'Confirmed steps whose weights have not reached the actors yet.',
    of: (steps) => steps,
  },
]);

/** Recorded with each step. */
export const ticketStats = new StatTable<{
  readonly limit: number;
  readonly bound: number;
}>([
  {
    jsonl: 'tickets/bound',
    prometheus: 'rl_ticket_bound_steps',
    help: 'The staleness for which tickets are issued, in steps: max_steps_off_policy, or less with auto.',
    of: ({ bound }) => bound,
  },
  {
    jsonl: 'tickets/limit',
    prometheus: 'rl_ticket_limit',
    help: "Tickets that may be outstanding, apart from those whose groups the backend has computed: the capacity law's bound, or fewer while groups wait for the learner.",
    of: ({ limit }) => limit,
  },
]);

export interface StepEventsOptions {
  readonly idle: IdleClock;
  /** Current metrics of other parts of the run, by the names of `metrics.jsonl`. */
  readonly surroundings: () => Readonly<Record<string, number>>;
  readonly log: Logger;
}

/** Makes the event of each confirmed step for the run's history: a line of `metrics.jsonl`. */
export class StepEvents {
  readonly #options: StepEventsOptions;
  readonly #lag = new EventLoopLag();
  #endedAt = performance.now();
  #idleBefore = 0;

  constructor(options: StepEventsOptions) {
    this.#options = options;
  }

  /** Starts the clock of the first step. */
  start(): void {
    this.#endedAt = performance.now();
    this.#idleBefore = totalSeconds(this.#options.idle);
  }

  /**
   * The event of the step that was just confirmed, which it counts.
   *
   * @param made the step, and the version that it made.
   * @param report of the step's data.
   * @param optimizer the backend's metrics and the learning rate, for each optimizer step.
   */
  make(
    { step, version }: { readonly step: number; readonly version: number },
    report: Readonly<Record<string, number>>,
    optimizer: readonly Readonly<Record<string, number>>[],
  ): StepEvent {
    const { idle, surroundings, log } = this.#options;
    stepsTrained.inc();
    optimizerSteps.inc(optimizer.length);
    const now = performance.now();
    const idleNow = totalSeconds(idle);
    const seconds = (now - this.#endedAt) / 1_000;
    const { learning_rate, ...optim } = means(optimizer);
    const metrics: Record<string, number> = {
      ...report,
      ...prefixed('optim', optim),
      ...prefixed('idle', idle.seconds), // since this session began, by cause
      idle_seconds: idleNow - this.#idleBefore,
      seconds,
      ...(learning_rate !== undefined && { learning_rate }),
      ...this.#lag.take(),
      ...surroundings(),
    };
    this.#endedAt = now;
    this.#idleBefore = idleNow;
    const finite = Object.entries(metrics).filter(([, value]) => Number.isFinite(value));
    log.info({ step, version, correct: metrics['env/all/correct'], seconds }, 'step trained');
    const metricsNow = Object.fromEntries(finite);
    return { v: 1, at: Date.now(), kind: 'step', step, version, metrics: metricsNow };
  }
}

/** The mean of each metric over the optimizer steps of a step. */
function means(substeps: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const metrics of substeps) {
    for (const [name, value] of Object.entries(metrics)) sums[name] = (sums[name] ?? 0) + value;
  }
  return Object.fromEntries(
    Object.entries(sums).map(([name, sum]) => [name, sum / substeps.length]),
  );
}

function totalSeconds(idle: IdleClock): number {
  return Object.values(idle.seconds).reduce((sum, seconds) => sum + seconds, 0);
}

/** The values under names such as `idle/groups`. */
export function prefixed(prefix: string, values: Readonly<Record<string, number>>) {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [`${prefix}/${name}`, value]),
  );
}

/** Measures the lag of this process's event loop between two readings. */
class EventLoopLag {
  readonly #delays = monitorEventLoopDelay({ resolution: 10 });

  constructor() {
    this.#delays.enable();
  }

  /** Returns the lag since the last call, by its names in `metrics.jsonl`, and resets it. */
  take(): Record<string, number> {
    const { max } = this.#delays;
    const p99 = this.#delays.percentile(99);
    this.#delays.reset();
    return { 'eventloop_lag_seconds/p99': p99 / 1e9, 'eventloop_lag_seconds/max': max / 1e9 };
  }
}
