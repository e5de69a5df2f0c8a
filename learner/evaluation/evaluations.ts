import { Counter, Gauge } from 'prom-client';
import type { History } from '../report/history.js';
import { evalsJournal, Journal } from '../report/journal.js';
import { StatTable } from '../report/stat-table.js';
import type { Evaluation } from '../settings/run-control.js';
import { errorText } from '../../shared/base/errors.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import { Evaluator } from '../../shared/run/evaluation/evaluator.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { EvalResult, SolveRates } from '../../shared/wire/eval-result.js';
import type { Ticket } from '../../shared/wire/ticket.js';

const evalScore = new Gauge({
  name: 'rl_eval_score',
  help: 'Share of held-out problems solved exactly, at the last evaluation.',
  labelNames: ['metric', 'difficulty'],
});

const resultStats = new StatTable<EvalResult>([
  { jsonl: 'eval/version', of: ({ version }) => version },
  {
    jsonl: 'eval/lag',
    prometheus: 'rl_eval_lag_steps',
    help: 'Newest version minus the evaluated one, when the last evaluation ended.',
    of: ({ lag }) => lag,
  },
]);

const evaluations = new Counter({
  name: 'rl_evaluations_total',
  help: 'Evaluations by outcome; one is skipped if a newer one falls due before it starts.',
  labelNames: ['outcome'],
});

const evalEverySteps = new Gauge({
  name: 'rl_eval_every_steps',
  help: 'Steps from one evaluation to the next during training; 0 if there are none.',
});

interface EvaluationsOptions {
  readonly evaluator: Pick<Evaluator, 'run'>;
  /** Steps between two evaluations during training; 0: none during training. */
  readonly everyVersions: number;
  /** The last result of the run's earlier sessions. */
  readonly last: EvalResult | undefined;
  /** Stores a result. */
  readonly emit: (result: EvalResult) => Promise<void>;
  /** Receives each evaluation as it starts; resolves when it has succeeded or failed. */
  readonly watch: (evaluation: Promise<void>) => Promise<void>;
  /** Ends the running evaluation and prevents further ones. */
  readonly signal: AbortSignal;
  readonly log: Logger;
}

/**
 * Runs the evaluations of a run, one at a time, while training continues. If an evaluation falls due while
 * another one waits, the newer replaces it: a late result says little, and every pending evaluation prevents
 * the weights of its version from being retired.
 */
export class Evaluations {
  readonly #options: EvaluationsOptions;
  #last: EvalResult | undefined;
  #running: { readonly version: number; readonly ended: Promise<void> } | undefined;
  #waiting: number | undefined;
  #unreported: Record<string, number> = {}; // the newest result, unless a step has taken it

  constructor(options: EvaluationsOptions) {
    this.#options = options;
    this.#last = options.last;
    evalEverySteps.set(options.everyVersions);
    // Export a 0 so that an alert can detect missing evaluations; no series if none are due.
    if (options.everyVersions > 0) evaluations.inc({ outcome: 'finished' }, 0);
  }

  /** Versions under evaluation or waiting for one: their weights must not be retired. */
  get pinnedVersions(): number[] {
    return [this.#running?.version, this.#waiting].filter((version) => version !== undefined);
  }

  /** Returns the result for a version, if that was evaluated last. */
  of(version: number): EvalResult | undefined {
    return this.#last?.version === version ? this.#last : undefined;
  }

  /**
   * Starts or queues an evaluation of a new version if one is due. Evaluations are due by step, as
   * checkpoints are, because a crash makes version numbers jump.
   */
  consider({ step, version }: { readonly step: number; readonly version: number }): void {
    const { everyVersions, log } = this.#options;
    if (everyVersions === 0 || step % everyVersions !== 0) return;
    if (this.#waiting !== undefined) {
      evaluations.inc({ outcome: 'skipped' });
      log.warn(
        { version: this.#waiting, newer: version },
        'evaluation skipped: a newer one is due',
      );
    }
    this.#enqueue(version);
  }

  /**
   * Evaluates a version after the running evaluations, unless that is done already; resolves when its own
   * evaluation has ended, though others may have followed.
   */
  async measure(version: number): Promise<EvalResult | undefined> {
    if (this.of(version) === undefined && !this.pinnedVersions.includes(version)) {
      if (this.#running !== undefined) await this.settled();
      this.#enqueue(version);
    }
    while (this.#running !== undefined && this.pinnedVersions.includes(version)) {
      await this.#running.ended;
    }
    return this.of(version);
  }

  /** Resolves when no evaluation is running. */
  async settled(): Promise<void> {
    while (this.#running !== undefined) await this.#running.ended;
  }

  /** Returns the newest result not returned yet, by its names in `metrics.jsonl`. */
  takeMetrics(): Record<string, number> {
    const metrics = this.#unreported;
    this.#unreported = {};
    return metrics;
  }

  #enqueue(version: number): void {
    this.#waiting = version;
    this.#startNext();
  }

  #startNext(): void {
    if (this.#running !== undefined || this.#waiting === undefined) return;
    if (this.#options.signal.aborted) return;
    const version = this.#waiting;
    this.#waiting = undefined;
    const ended = this.#options.watch(
      this.#measure(version).finally(() => {
        this.#running = undefined;
        this.#startNext();
      }),
    );
    this.#running = { version, ended };
  }

  /** Runs an evaluation; a failure is logged and does not end the training. */
  async #measure(version: number): Promise<void> {
    const { evaluator, emit, signal, log } = this.#options;
    try {
      const result = await evaluator.run(version, signal);
      this.#last = result;
      // The alert takes any series for evaluations that are due; the last version is measured even if none are.
      if (this.#options.everyVersions > 0) evaluations.inc({ outcome: 'finished' });
      this.#unreported = record(result);
      const { answers: _each, ...rates } = result;
      log.info(rates, 'evaluated');
      await emit(result);
    } catch (caught) {
      if (signal.aborted) return;
      evaluations.inc({ outcome: 'failed' });
      log.error({ version, reason: errorText(caught) }, 'evaluation failed');
    }
  }
}

/** Returns the numbers of a result by their names in `metrics.jsonl`; also sets them in Prometheus. */
function record(result: EvalResult): Record<string, number> {
  const metrics = resultStats.record(result);
  evalScore.reset();
  const all = { difficulty: 'all', ...result };
  for (const { difficulty, ...rates } of [all, ...difficultiesOf(result)]) {
    for (const [metric, rate] of ratesOf(rates)) {
      evalScore.set({ metric, difficulty }, rate);
      metrics[difficulty === 'all' ? `eval/${metric}` : `eval/${metric}/${difficulty}`] = rate;
    }
  }
  return metrics;
}

/** The rates by difficulty; empty if all problems have one difficulty, as the total already covers it. */
function difficultiesOf({ byDifficulty }: EvalResult): EvalResult['byDifficulty'] {
  return byDifficulty.length > 1 ? byDifficulty : [];
}

/** Named rates: `sampled`, `greedy`, `pass@4`, … */
function ratesOf({ sampled, greedy, passAt }: SolveRates): [string, number][] {
  const passes = Object.entries(passAt).map(([k, rate]): [string, number] => [`pass@${k}`, rate]);
  return [['sampled', sampled], ['greedy', greedy], ...passes];
}

export interface OpenEvaluationsOptions {
  readonly settings: Evaluation;
  readonly config: RunConfig;
  readonly dataset: Dataset;
  readonly runDir: string;
  readonly broker: Pick<Broker, 'events' | 'clearQueue'>;
  readonly publish: (ticket: Ticket, signal: AbortSignal) => Promise<void>;
  readonly newestVersion: () => number;
  readonly isQuarantined: (actor: string) => boolean;
  readonly past: Pick<History, 'evals' | 'undoneVersions'>;
  readonly version: number; // at the start of this session
  readonly onResult: (result: EvalResult) => Promise<void>;
  readonly scope: TaskScope;
  readonly signal: AbortSignal;
  readonly log: Logger;
}

/** Opens the evaluations, which report to the run's events and `evals.jsonl`, and their evaluator. */
export async function openEvaluations(
  options: OpenEvaluationsOptions,
): Promise<{ evaluations: Evaluations; evaluator: Evaluator }> {
  const { settings, config, dataset, runDir, broker, past, version, signal, log } = options;
  const { evalProblems, evalSamples: samples, evalEveryVersions } = settings;
  const isKept = (evaluated: number) => evaluated < version && !past.undoneVersions.has(evaluated);
  const journal = await Journal.open(runDir, evalsJournal, past.evals, isKept, { log, signal });
  await broker.clearQueue('tickets.eval'); // tickets of evaluations that an earlier session did not finish
  const problems = dataset.test.slice(0, evalProblems);
  const { publish, newestVersion, isQuarantined } = options;
  const evaluator = new Evaluator({
    config,
    problems,
    samples,
    publish,
    newestVersion,
    isQuarantined,
    log,
  });
  const evaluations = new Evaluations({
    evaluator,
    everyVersions: evalProblems === 0 ? 0 : evalEveryVersions,
    last: past.evals.at(-1)?.result,
    watch: (evaluation) => options.scope.track(evaluation),
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
