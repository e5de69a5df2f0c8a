import type { Broker } from '../../shared/broker/broker.js';
import type { RunEvent } from '../../shared/wire/run-event.js';

export type StepEvent = Extract<RunEvent, { kind: 'step' }>;
export type EvalEvent = Extract<RunEvent, { kind: 'eval' }>;

/** The past of a run up to the restored weights. */
export interface History {
  readonly steps: readonly StepEvent[]; // one a step, rising
  readonly evals: readonly EvalEvent[]; // of these weights and those before, in order of creation
  readonly undoneVersions: ReadonlySet<number>; // of steps that a crash rolled back
  readonly restoredVersions: ReadonlySet<number>; // of weights that a resume published again
  readonly newest: StepEvent | undefined; // step, also one that the restored weights lack
}

/**
 * Reads the run's events up to the announcement of a version that this learner has just published,
 * which proves that all of the past has been read.
 *
 * @param until the last step that the restored weights contain: later ones were lost in a crash, and if
 *   a step was trained twice the second event counts.
 */
export async function readHistory(
  events: Broker['events'],
  announced: number,
  until: number,
): Promise<History> {
  const seen = new AbortController();
  const steps = new Map<number, StepEvent>();
  const made = new Set<number>(); // versions, by steps
  const restoredVersions = new Set<number>();
  const evals: EvalEvent[] = [];
  let newest: StepEvent | undefined;
  for await (const event of events.read(seen.signal)) {
    if (event.kind === 'step') {
      steps.set(event.step, event);
      made.add(event.version);
      restoredVersions.delete(event.version); // it was published before its step was recorded
      newest = event;
    } else if (event.kind === 'eval') evals.push(event);
    else if (event.kind === 'checkpoint') {
      // A number whose step was undone before its weights were published is given again, to restored weights.
      for (const { from } of event.checkpoint.rewinds ?? []) made.delete(from);
    } else if (event.kind === 'version') {
      if (event.version === announced) break;
      if (!made.has(event.version)) restoredVersions.add(event.version);
    }
  }
  seen.abort();
  const kept = [...steps.values()].filter(({ step }) => step <= until);
  const undoneVersions = made;
  for (const { version } of kept) undoneVersions.delete(version);
  return {
    steps: kept.sort((a, b) => a.step - b.step),
    evals: evals.filter(({ result }) => !undoneVersions.has(result.version)),
    undoneVersions,
    restoredVersions,
    newest,
  };
}

/**
 * The evaluation of the weights that the run began with; undefined if there was none.
 *
 * @param until the last step that the restored weights contain.
 */
export function firstEvaluation(
  { steps, evals }: Pick<History, 'steps' | 'evals'>,
  until: number,
): EvalEvent['result'] | undefined {
  // A run starts with version 0. It has later versions of the same weights if it was resumed before its first step.
  const first = until === 0 ? Infinity : steps[0]?.step === 1 ? steps[0].version : 1;
  return evals.find(({ result }) => result.version < first)?.result;
}

/**
 * The scores that evaluations in earlier sessions gave to the steps of the restored weights.
 *
 * @returns step, score and the number of held-out problems of each, in order of evaluation. A version that a crash
 *   rolled back has none, even if its step was trained again.
 */
export function pastScores({
  steps,
  evals,
  restoredVersions,
}: Pick<History, 'steps' | 'evals' | 'restoredVersions'>): [number, number, number][] {
  const stepOf = new Map(steps.map(({ step, version }) => [version, step]));
  for (const restored of restoredVersions) {
    stepOf.set(restored, steps.findLast(({ version }) => version < restored)?.step ?? 0);
  }
  stepOf.set(0, 0); // a run starts with version 0 at step 0
  return evals.flatMap(({ result: { version, sampled, problems } }) => {
    const step = stepOf.get(version);
    return step === undefined ? [] : [[step, sampled, problems] as [number, number, number]];
  });
}

/** Totals over the steps of a run, in constant memory. */
export interface Totals {
  readonly steps: number; // counted
  readonly lastStep: number;
  readonly seconds: number; // of training, evaluations excluded
  readonly idleSeconds: number;
  readonly rollouts: number;
  readonly tokens: number;
  readonly stalenessSum: number; // of the means of the steps
  readonly stalenessMax: number;
}

export const noSteps: Totals = {
  steps: 0,
  lastStep: 0,
  seconds: 0,
  idleSeconds: 0,
  rollouts: 0,
  tokens: 0,
  stalenessSum: 0,
  stalenessMax: 0,
};

/** The totals with one more step, whose metrics have the names of `metrics.jsonl`. */
export function withStep(totals: Totals, { step, metrics }: StepEvent): Totals {
  const value = (name: string): number => metrics[name] ?? 0;
  return {
    steps: totals.steps + 1,
    lastStep: step,
    seconds: totals.seconds + value('seconds'),
    idleSeconds: totals.idleSeconds + value('idle_seconds'),
    rollouts: totals.rollouts + value('scored/rollouts'),
    tokens: totals.tokens + value('scored/tokens') + value('sft/tokens'),
    stalenessSum: totals.stalenessSum + value('staleness/mean'),
    stalenessMax: Math.max(totals.stalenessMax, value('staleness/max')),
  };
}
