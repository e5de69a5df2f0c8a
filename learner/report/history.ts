import type { Broker } from '../../shared/broker/broker.js';
import type { RunEvent } from '../../shared/wire/run-event.js';

export type StepEvent = Extract<RunEvent, { kind: 'step' }>;
export type EvalEvent = Extract<RunEvent, { kind: 'eval' }>;

/** The run's past, as far as the restored weights know it. */
export interface History {
  readonly steps: readonly StepEvent[]; // one a step, rising
  readonly evals: readonly EvalEvent[]; // in the order that they were made
  readonly quarantined: readonly string[]; // actors
}

/**
 * Reads the run's events up to the announcement of a version that this learner has just published,
 * which is how it knows that it has seen all of the past.
 *
 * @param until the last step that the weights have behind them: later ones were lost in a crash, and
 * of a step that was made twice the second counts.
 */
export async function readHistory(
  events: Broker['events'],
  announced: number,
  until: number,
): Promise<History> {
  const seen = new AbortController();
  const steps = new Map<number, StepEvent>();
  const evals: EvalEvent[] = [];
  const quarantined: string[] = [];
  for await (const event of events.read(seen.signal)) {
    if (event.kind === 'step') steps.set(event.step, event);
    else if (event.kind === 'eval') evals.push(event);
    else if (event.kind === 'quarantine') quarantined.push(event.actor);
    else if (event.kind === 'version' && event.version === announced) break;
  }
  seen.abort();
  return {
    steps: [...steps.values()].filter(({ step }) => step <= until).sort((a, b) => a.step - b.step),
    evals,
    quarantined,
  };
}
