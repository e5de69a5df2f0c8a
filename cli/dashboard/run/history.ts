import type { EvalResult } from '../../../shared/wire/eval-result.js';
import type { RunEvent } from '../../../shared/wire/run-event.js';
import type { StepRow } from '../../read-journal.js';

/** A version that was measured on held-out problems. */
export type EvalPoint = Pick<
  EvalResult,
  'version' | 'problems' | 'samples' | 'sampled' | 'greedy' | 'passAt'
>;

/** The steps, evaluations and end of a run so far. */
export interface History {
  readonly steps: readonly StepRow[]; // their numbers rising
  readonly evals: readonly EvalPoint[]; // their versions rising
  readonly quarantined: readonly string[]; // actors
  readonly summary: Readonly<Record<string, unknown>> | undefined; // of a run that has ended
}

/** The history built from a run's events. */
export class EventHistory implements History {
  readonly steps: StepRow[] = [];
  evals: EvalPoint[] = [];
  readonly quarantined: string[] = [];
  summary: Readonly<Record<string, unknown>> | undefined;
  /** The summary of the session before, until a resumed run has a new step. */
  resumed: Readonly<Record<string, unknown>> | undefined;

  /** A crashed learner continues from its checkpoint: steps that it trains again count once. */
  take(event: RunEvent): void {
    switch (event.kind) {
      case 'step': {
        const { step, version, at, metrics } = event;
        const undone = dropFrom(this.steps, (known) => known.step >= step);
        dropFrom(this.evals, (known) => known.version > version);
        if (undone.length > 0) {
          const versions = new Set(undone.map((known) => known.version));
          this.evals = this.evals.filter((known) => !versions.has(known.version));
        }
        this.steps.push({ step, version, at, metrics });
        this.resumed = undefined;
        break;
      }
      case 'eval':
        dropFrom(this.evals, (known) => known.version >= event.result.version);
        this.evals.push(event.result);
        break;
      case 'quarantine':
        if (!this.quarantined.includes(event.actor)) this.quarantined.push(event.actor);
        break;
      case 'end':
        this.summary = event.summary;
        break;
      case 'leader':
        this.resumed = this.summary ?? this.resumed; // a run that had ended is resumed
        this.summary = undefined;
        break;
    }
  }
}

/** Drops the outdated items at the end, and returns them. */
function dropFrom<T>(items: T[], isOutdated: (item: T) => boolean): T[] {
  let kept = items.length;
  while (kept > 0 && isOutdated(items[kept - 1]!)) kept -= 1;
  return items.splice(kept);
}
