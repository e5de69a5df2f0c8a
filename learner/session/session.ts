import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { billOf, recordBill } from '../cost/bill.js';
import { UserError } from '../../shared/base/errors.js';
import { dropTotals } from '../../shared/service/telemetry/drops.js';
import { callsText } from '../../shared/tinker/capability-probe.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { Meter } from '../cost/meter.js';
import { CheckpointStore } from '../checkpoints/checkpoint-store.js';
import { isCheckpointed } from '../checkpoints/retention.js';
import { openBase, openRun } from '../checkpoints/opening.js';
import {
  firstEvaluation,
  noSteps,
  pastScores,
  readHistory,
  type StepEvent,
  withStep,
} from '../report/history.js';
import { DivergenceWatch } from '../stop/divergence-watch.js';
import { openEvaluations } from '../evaluation/evaluations.js';
import { ShareWatch } from '../report/run-watch.js';
import { Journal, metricsJournal } from '../report/journal.js';
import type { SummaryInput } from '../report/summary.js';
import { newTicketKey } from '../../shared/wire/ticket-ids.js';
import { divergenceLimits } from '../settings/run-control.js';
import { VersionNotFinite } from '../publish/adapter-supply.js';
import { Training, type TrainingLoop } from '../step/training.js';
import { SupervisedTraining } from '../supervised/supervised-training.js';
import { makeParts, type SessionParts, type SessionOptions } from './parts.js';
import { SessionQueues } from './queues.js';
import { keepUp } from './upkeep.js';

export type SessionResult = Omit<SummaryInput, 'run' | 'wallSeconds'>;

/**
 * Runs one session: opens or restores the run on one backend, trains, and evaluates before and after. If the
 * session ends early, the next one resumes from the ledger's checkpoint.
 */
export async function runSession(options: SessionOptions): Promise<SessionResult> {
  const { settings, config, broker, scope, clock, meter, stop, log } = options;
  const { opened, base, parts, queues } = await openSession(options);
  const { step, version } = opened;
  const { admission, publisher, checkpointer, unacked, account, audit, certificates } = parts;
  const { learningRates } = parts;
  const past = await openPast(options, version, step, admission.limiter);
  checkpointer.remember(past.scores);
  let { totals } = past;
  meter.resume(opened.usage, past.newest?.metrics);
  const bill = () => {
    meter.measure(options.runWatch.leases);
    const usage = { tokens: account.totals, meter: meter.totals };
    return billOf(usage, account.inFlight, settings);
  };
  const stepOf = (made: number) => step + made - version; // that made a version of this session

  await using _shares = new ShareWatch(broker, log);
  const { evaluations, evaluator } = await openEvaluations({
    ...options,
    publish: (ticket, signal) => queues.publish(ticket, signal),
    newestVersion: () => publisher.newestVersion,
    isQuarantined: (actor) => audit.isQuarantined(actor),
    past,
    version,
    onResult: ({ version: measured, sampled, problems }) =>
      checkpointer.scored(stepOf(measured), sampled, problems),
    signal: AbortSignal.any([stop, scope.signal]),
  });
  checkpointer.keepStatesOf(() => evaluations.pinnedVersions.map(stepOf));
  const common = {
    ...parts,
    meter,
    config,
    run: opened.run,
    scope,
    log,
    isCheckpointed: (number: number) => isCheckpointed(number, settings),
    versionsInUse: () => evaluations.pinnedVersions,
    onStep: async (trained: StepEvent) => {
      const metrics = { ...trained.metrics, ...evaluations.takeMetrics() };
      const event = { ...trained, metrics };
      totals = withStep(totals, event);
      await broker.events.emit(event);
      await rm(join(options.runDir, 'summary.json'), { force: true }); // an earlier session's lacks this step
      await past.metricsFile.append(event);
      evaluations.consider(event);
    },
  };
  const surroundings = () => ({
    ...options.runWatch.metrics,
    ...publisher.metrics,
    ...recordBill(bill()),
    ...dropTotals(),
  });
  const supervised =
    options.supervised &&
    new SupervisedTraining({
      ...common,
      ...options.supervised,
      start: {
        step,
        version,
        place: opened.table?.consumedBelow ?? 0,
        leftOut: opened.table?.counts.dead ?? 0,
      },
      maxSteps: settings.maxSteps ?? Infinity,
      measureEverySteps: settings.evalEveryVersions,
      evaluateEverySteps: settings.evalProblems === 0 ? 0 : settings.evalEveryVersions,
      surroundings,
    });
  const training: TrainingLoop =
    supervised ??
    new Training({
      ...common,
      base,
      divergence: past.divergence,
      surroundings: () => ({
        ...surroundings(),
        ...audit.metrics,
        ...certificates.metrics,
        ...unacked.countAwaiting((order) => admission.table.isConsumed(order)),
      }),
    });

  async function evaluate(): Promise<EvalResult | undefined> {
    if (settings.evalProblems === 0) return undefined;
    const result = await evaluations.measure(training.position.version);
    scope.signal.throwIfAborted();
    return result;
  }

  /** Trains until the run is complete, its time is up or the learner is stopped. */
  async function train(): Promise<Pick<SessionResult, 'reason' | 'divergence' | 'noSignalStreak'>> {
    if (learningRates.isSpent) {
      return { reason: settings.maxMinutes === undefined ? 'max_steps' : 'max_minutes' };
    }
    using time = clock.start();
    {
      // The exchange ends before the reason below is determined.
      await using exchange = scope.child(stop, time.signal);
      if (supervised === undefined) queues.issueAndReceive(exchange);
      const givenUp = await training.run(AbortSignal.any([stop, time.signal]));
      if (givenUp !== undefined) return givenUp;
    }
    const { isComplete } = training.position;
    return { reason: stop.aborted ? 'stopped' : isComplete ? 'max_steps' : 'max_minutes' };
  }

  using _upkeep = keepUp({ ...options, ...parts, onCheck: () => recordBill(bill()) });
  queues.watchDeaths(evaluator);
  queues.handleEvaluations(evaluator);
  // Beside training, so that the first step does not wait for it. Only at step 0: a resumed run has other weights.
  const first = past.first ?? (step === 0 ? evaluate() : undefined);
  const before = scope.track(Promise.resolve(first));
  const ending = stop.aborted ? { reason: 'stopped' as const } : await train();
  const after = ending.reason === 'diverged' ? undefined : await evaluate();
  // Nothing is left to train, but a stop ended the last evaluation: the next learner measures what this one could not.
  const isUnmeasured = stop.aborted && settings.evalProblems > 0 && after === undefined;
  const isTrained =
    ending.reason === 'max_steps' ||
    (ending.reason === 'max_minutes' && learningRates.leavesNothing(training.position.step));
  return {
    ...ending,
    ...(isTrained && isUnmeasured && { reason: 'stopped' as const }),
    totals,
    before: await before,
    after,
    version: training.position.version,
    groups: training.position.counts,
    supervised: supervised?.result,
    from: config.from && (config.from.run ?? config.from.path),
    bill: bill(),
  };
}

/** Opens or restores the run, makes the parts of the session, and publishes the version that the run begins or continues with. */
async function openSession(options: SessionOptions) {
  const { config, broker, client, scope, log } = options;
  const checkpoints = new CheckpointStore(options);
  const opened = await openRun({ ...options, checkpoints });
  const base = await openBase(client, config);
  // The loss of the run, and the one that corrections, audits and watches ask for logprobs with.
  const carried = await opened.run.probeLosses([config.loss.name, 'cross_entropy'], {
    ...config.loss.config,
    temperature: config.sampling.temperature,
  });
  for (const [name, carrier] of Object.entries(carried)) {
    log.warn(
      { loss: name, carrier },
      'the backend lacks this loss: it is computed exactly by another, with one forward pass more',
    );
  }
  await options.announce(); // not before the backend has accepted the run with its settings
  const unkeyed = opened.table?.nextOrder ?? 0; // tickets that may have been issued without a key
  const ids = await broker.ledger.settleTicketIds(opened.ticketKey ?? newTicketKey(unkeyed));
  const ticketsSoFar = await broker.ticketsSoFar();
  const end = (await broker.events.newest('end'))?.summary;
  const hasEnded = end?.['steps'] === opened.step && end['reason'] !== 'stopped';
  const parts = makeParts(options, opened, { checkpoints, ticketsSoFar, ids, scope, hasEnded });
  const { publisher, audit, certificates } = parts;

  // A run has a checkpoint before its first ticket, so that there is always one to restore.
  if (!opened.isResumed) await saveStart(parts, options.meter);
  await certificates.recall(broker.policy);
  await parts.adapters.open(await broker.policy.manifests());
  // Before the first manifest, which names the quarantined actors.
  for await (const event of broker.events.every('quarantine')) audit.remember([event]);
  await publisher.publish(opened.version).catch((caught: unknown) => {
    if (!(caught instanceof VersionNotFinite)) throw caught;
    throw new UserError(
      `${caught.message}; these are the weights of step ${opened.step} as the backend has them, before this learner trained ` +
        'anything: check --model-dir and the checkpoints of the backend, or start a new run',
      { cause: caught },
    );
  });
  const { loss, model } = config;
  log.info(
    {
      loss: carried[loss.name] === undefined ? loss.name : `${loss.name} by ${carried[loss.name]}`,
      sampling: client.samples(model.name),
      promptLogprobs: (await client.probePromptLogprobs(model.name)).known,
      adapters: publisher.adapters,
      adaptersAtOnce: 'unknown', // no server says it; the doctor tries a second one
      calls: callsText(await client.probeCalls()),
    },
    'what the backend offers',
  );
  await broker.resetConsumer('scored.train');
  await broker.resetConsumer('scored.eval');
  return { opened, base, parts, queues: new SessionQueues(options, parts, scope) };
}

/** Reads a run's past and reduces its steps to what the session needs. */
async function openPast(
  { broker, runDir, settings, supervised, scope, stop, log }: SessionOptions,
  version: number,
  step: number,
  limiter: Pick<SessionParts['admission']['limiter'], 'adaptBound'>,
) {
  const { steps, ...rest } = await readHistory(broker.events, version, step);
  for (const { metrics } of steps) limiter.adaptBound(metrics);
  return {
    ...rest,
    first: firstEvaluation({ steps, evals: rest.evals }, step),
    scores: pastScores({ steps, ...rest }),
    metricsFile: await Journal.open(runDir, metricsJournal, steps, (trained) => trained <= step, {
      log,
      signal: AbortSignal.any([stop, scope.signal]),
    }),
    // Steps on examples have no KL to judge.
    divergence: new DivergenceWatch(divergenceLimits(settings), supervised ? [] : steps),
    totals: steps.reduce(withStep, noSteps),
  };
}

/** Writes the first checkpoint of a new run. */
async function saveStart(
  { admission, checkpointer, account }: SessionParts,
  meter: Pick<Meter, 'totals'>,
): Promise<void> {
  const { step, confirmedVersion: version } = admission;
  const table = admission.table.state;
  const usage = { tokens: account.totals, counted: [], meter: meter.totals };
  await checkpointer
    .save(step)
    .write({ step, version, progress: 0, table, rewinds: [], usage, messages: [] });
}
