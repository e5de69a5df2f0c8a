import { Counter, Gauge } from 'prom-client';
import type { EvalEvent } from '../report/history.js';
import { evalsJournal, Journal } from '../report/journal.js';
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

const evalLag = new Gauge({
  name: 'rl_eval_lag_steps',
  help: 'Newest version minus the evaluated one, when the last evaluation ended.',
});

const evaluations = new Counter({
  name: 'rl_evaluations_total',
  help: 'Evaluations by how they ended; one is skipped when training overtook it before it began.',
  labelNames: ['outcome'],
});

export interface EvaluationsOptions {
  readonly evaluator: Pick<Evaluator, 'run'>;
  /** Steps from one evaluation to the next while training goes on, each making a version; 0: none meanwhile. */
  readonly everyVersions: number;
  /** The last one of the run's earlier lives. */
  readonly last: EvalResult | undefined;
  /** Writes a result down. */
  readonly emit: (result: EvalResult) => Promise<void>;
  /** Given each evaluation as it begins; resolves when it has ended, however it has. */
  readonly watch: (evaluation: Promise<void>) => Promise<void>;
  /** Ends the evaluation under way, and all that would follow. */
  readonly signal: AbortSignal;
  readonly log: Logger;
}

/**
 * The run's evaluations: one at a time, while training goes on. When training is so fast that another
 * one falls due behind one that already waits, the newer takes its place: what is measured late says
 * little, and each keeps the weights of its version from being retired.
 */
export class Evaluations {
  readonly #options: EvaluationsOptions;
  #last: EvalResult | undefined;
  #running: { readonly version: number; readonly ended: Promise<void> } | undefined;
  #waiting: number | undefined;
  #unreported: EvalResult | undefined;

  constructor(options: EvaluationsOptions) {
    this.#options = options;
    this.#last = options.last;
    // From 0 on, so that an alert can tell that there is none; without the series where none is due.
    if (options.everyVersions > 0) evaluations.inc({ outcome: 'finished' }, 0);
  }

  /** Versions that are, or are about to be, measured: their weights must not be retired. */
  get pinnedVersions(): number[] {
    return [this.#running?.version, this.#waiting].filter((version) => version !== undefined);
  }

  /** The result for a version, if it is the one that was measured last. */
  of(version: number): EvalResult | undefined {
    return this.#last?.version === version ? this.#last : undefined;
  }

  /**
   * A step has made a version: has it measured if one is due again. That goes by the steps, whose
   * checkpoints are at fixed ones too; after a crash versions are numbered on from another.
   */
  consider({ step, version }: { readonly step: number; readonly version: number }): void {
    const { everyVersions, log } = this.#options;
    if (everyVersions === 0 || step % everyVersions !== 0) return;
    if (this.#waiting !== undefined) {
      evaluations.inc({ outcome: 'skipped' });
      log.warn({ version: this.#waiting, newer: version }, 'not evaluated: a newer one is due');
    }
    this.#enter(version);
  }

  /** Measures a version now, behind what is under way, unless it has been; resolves when it has. */
  async measure(version: number): Promise<EvalResult | undefined> {
    if (this.of(version) === undefined && !this.pinnedVersions.includes(version)) {
      await this.settled();
      this.#enter(version);
    }
    await this.settled();
    return this.of(version);
  }

  /** Resolves when none is under way. */
  async settled(): Promise<void> {
    while (this.#running !== undefined) await this.#running.ended;
  }

  /** The newest result that was not told in this way yet, by the names of `metrics.jsonl`. */
  takeMetrics(): Record<string, number> {
    const result = this.#unreported;
    this.#unreported = undefined;
    if (result === undefined) return {};
    const { version, lag } = result;
    const byDifficulty = difficultiesOf(result).flatMap(({ difficulty, ...rates }) =>
      ratesOf(rates).map(([name, rate]): [string, number] => [`eval/${name}/${difficulty}`, rate]),
    );
    return {
      'eval/version': version,
      'eval/lag': lag,
      ...Object.fromEntries(ratesOf(result).map(([name, rate]) => [`eval/${name}`, rate])),
      ...Object.fromEntries(byDifficulty),
    };
  }

  #enter(version: number): void {
    this.#waiting = version;
    this.#next();
  }

  #next(): void {
    if (this.#running !== undefined || this.#waiting === undefined) return;
    if (this.#options.signal.aborted) return;
    const version = this.#waiting;
    this.#waiting = undefined;
    const ended = this.#options.watch(
      this.#measure(version).finally(() => {
        this.#running = undefined;
        this.#next();
      }),
    );
    this.#running = { version, ended };
  }

  /** An evaluation that fails must not end the training that it looks at. */
  async #measure(version: number): Promise<void> {
    const { evaluator, emit, signal, log } = this.#options;
    try {
      const result = await evaluator.run(version, signal);
      this.#last = result;
      this.#unreported = result;
      evaluations.inc({ outcome: 'finished' });
      show(result);
      const { answers: _each, ...rates } = result;
      log.info(rates, 'evaluated');
      await emit(result);
    } catch (caught) {
      if (signal.aborted) return;
      evaluations.inc({ outcome: 'failed' });
      log.error({ version, reason: errorText(caught) }, 'could not evaluate');
    }
  }
}

function show(result: EvalResult): void {
  evalLag.set(result.lag);
  evalScore.reset();
  const all = { difficulty: 'all', ...result };
  for (const { difficulty, ...rates } of [all, ...difficultiesOf(result)]) {
    for (const [metric, rate] of ratesOf(rates)) evalScore.set({ metric, difficulty }, rate);
  }
}

/** None where all problems are of one difficulty: it would say the same twice. */
function difficultiesOf({ byDifficulty }: EvalResult): EvalResult['byDifficulty'] {
  return byDifficulty.length > 1 ? byDifficulty : [];
}

/** `sampled`, `greedy`, `pass@4`, … */
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
