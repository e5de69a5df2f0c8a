import type { Broker } from '../../shared/broker/broker.js';
import { Evaluator } from '../../shared/run/evaluation/evaluator.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import { Evaluations } from './evaluations.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import type { EvalEvent } from '../report/history.js';
import { evalsJournal, Journal } from '../report/journal.js';
import type { Evaluation } from '../settings/run-control.js';

export interface OpenEvaluationsOptions {
  readonly settings: Evaluation;
  readonly config: RunConfig;
  readonly dataset: Dataset;
  readonly runDir: string;
  readonly broker: Pick<Broker, 'events' | 'clearQueue'>;
  readonly publish: (ticket: Ticket, signal: AbortSignal) => Promise<void>;
  readonly newestVersion: () => number;
  readonly isQuarantined: (actor: string) => boolean;
  readonly past: readonly EvalEvent[];
  readonly version: number; // that this session begins with
  readonly onResult: (result: EvalResult) => Promise<void>;
  readonly scope: TaskScope;
  readonly signal: AbortSignal;
  readonly log: Logger;
}

/** The run's evaluations, told in its events and in `evals.jsonl`, and what takes in their answers. */
export async function openEvaluations(
  options: OpenEvaluationsOptions,
): Promise<{ evaluations: Evaluations; evaluator: Evaluator }> {
  const { settings, config, dataset, runDir, broker, past, version, signal, log } = options;
  const { evalProblems, evalSamples: samples, evalEveryVersions } = settings;
  const journal = await Journal.open(runDir, evalsJournal, past, version - 1, { log, signal });
  await broker.clearQueue('tickets.eval'); // of evaluations that an earlier life did not finish
  const problems = dataset.test.slice(0, evalProblems);
  const { publish, newestVersion, isQuarantined } = options;
  const evaluator = new Evaluator({
    ...{ config, problems, samples, publish },
    ...{ newestVersion, isQuarantined, log },
  });
  const evaluations = new Evaluations({
    evaluator,
    everyVersions: evalProblems === 0 ? 0 : evalEveryVersions,
    last: past.at(-1)?.result,
    watch: (evaluation) => options.scope.watch(evaluation),
    emit: async (result) => {
      const event = { v: 1, at: Date.now(), kind: 'eval', result } as const;
      await broker.events.emit(event);
      await journal.append(event);
      await options.onResult(result);
    },
    signal,
    log,
  });
  return { evaluations, evaluator };
}
