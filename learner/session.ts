import type { Broker } from '../shared/broker/broker.js';
import { consume } from '../shared/broker/consume.js';
import { watchDeadLetters } from '../shared/broker/dead-letter-watch.js';
import type { Leadership } from '../shared/broker/leadership.js';
import { ticketBound } from '../shared/rl/capacity.js';
import { dropTotals } from '../shared/telemetry/drops.js';
import type { Logger } from '../shared/telemetry/logger.js';
import type { Dataset } from '../shared/tasks/dataset.js';
import type { TinkerClient } from '../shared/tinker/client.js';
import type { EvalResult } from '../shared/wire/eval-result.js';
import type { RunConfig } from '../shared/wire/run-config.js';
import { ScoredGroup } from '../shared/wire/scored-group.js';
import { Ticket } from '../shared/wire/ticket.js';
import { ActorAudit } from './step/actor-audit.js';
import { Admission } from './groups/admission.js';
import { Changes } from './changes.js';
import { Checkpointer } from './checkpoints/checkpointer.js';
import type { LearnerConfig } from './config.js';
import { DivergenceWatch, type Divergence } from './divergence-watch.js';
import { Failure } from './failure.js';
import { readHistory, type StepEvent } from './report/history.js';
import { IdleClock } from './idle-clock.js';
import { Intake, type ArrivedGroup } from './groups/intake.js';
import { Journal, metricsJournal } from './report/journal.js';
import { openEvaluations } from './evaluation/open-evaluations.js';
import { openBase, openRun } from './checkpoints/opening.js';
import { Pace } from './pace.js';
import { Publisher } from './publisher.js';
import { auditLimits } from './settings/audit.js';
import { divergenceLimits } from './settings/stops.js';
import type { RunWatch } from './report/run-watch.js';
import type { EndReason, SummaryInput } from './report/summary.js';
import { Tally } from './groups/tally.js';
import { issueTickets } from './groups/ticket-issuer.js';
import { orderOf, TicketSource } from './tickets/ticket-source.js';
import { Training } from './training.js';
import type { TrainingClock } from './training-clock.js';
import { Unsettled } from './groups/unsettled.js';

export interface SessionOptions {
  readonly settings: LearnerConfig;
  readonly config: RunConfig;
  readonly dataset: Dataset;
  readonly vocabSize: number;
  readonly runDir: string;
  readonly runWatch: Pick<RunWatch, 'metrics'>;
  readonly broker: Broker;
  readonly client: TinkerClient;
  readonly leadership: Leadership;
  readonly clock: TrainingClock;
  /** Asks the learner to stop: it gives up the step in progress, checkpoints and returns. */
  readonly stop: AbortSignal;
  readonly log: Logger;
}

export type SessionResult = Omit<SummaryInput, 'run' | 'wallSeconds'>;

/**
 * One life of a run with one backend: opens or restores it, evaluates, trains, evaluates. Whatever
 * ends it early, the ledger's checkpoint is where the next one begins.
 */
export async function runSession(options: SessionOptions): Promise<SessionResult> {
  const { settings, config, dataset, runWatch, broker, client, leadership, clock, stop, log } =
    options;
  const { maxStepsOffPolicy } = config;
  const opened = await openRun(broker, client, config, log);
  const { run, step, version, isResumed, book, rewind } = opened;
  const base = await openBase(client, config);

  const now = (): number => performance.now() / 1_000;
  const failure = new Failure();
  const changes = new Changes();
  const idle = new IdleClock(now);
  const unsettled = new Unsettled();
  const tickets = new TicketSource(
    config,
    dataset.train.map(({ id }) => id),
    {
      margin: ticketBound(maxStepsOffPolicy, config.groupsPerBatch),
      state: opened.curriculum,
    },
  );
  const tally = new Tally((ticket) => tickets.isReplay(ticket));
  const admission = new Admission<ArrivedGroup>(
    { ...config, maxSteps: settings.maxSteps ?? Infinity },
    { step, version, ...(book === undefined ? {} : { book }), rewind },
  );
  const backendSamples = doesSample(client, config.model.name);
  const audit = new ActorAudit({
    share: settings.auditShare,
    seed: config.seed,
    limits: auditLimits(settings),
    tell: (event) => broker.events.emit(event),
    log,
  });
  const publisher = new Publisher({
    broker,
    client,
    run,
    backendSamples,
    idle,
    maxStepsOffPolicy,
    rewind,
    consumedBelow: () => admission.book.consumedBelow,
    quarantined: () => audit.quarantined,
    log,
  });
  const checkpointer = new Checkpointer({
    ledger: broker.ledger,
    client,
    run,
    unsettled,
    idle,
    restored: opened.state,
    states: opened.states,
    keepEverySteps: settings.keepEverySteps,
    log,
  });
  const newestVersion = (): number => publisher.newestVersion;
  const publish =
    (split: 'train' | 'eval') =>
    async (ticket: Ticket, signal: AbortSignal): Promise<void> => {
      const msgId = `${ticket.ticketId}.${ticket.attempt}`;
      await broker.publish(broker.names.subjects.tickets(split), Ticket, ticket, { msgId, signal });
    };
  const intake = new Intake({
    admission,
    tickets,
    unsettled,
    changes,
    newestVersion,
    isResumed,
    log,
    tally,
    vocabSize: options.vocabSize,
    zeroVariance: config.zeroVariance,
    isQuarantined: (actor) => audit.isQuarantined(actor),
  });

  // A run has a checkpoint before anyone works for it, so that there is always one to go back to.
  if (!isResumed) {
    const messages: number[] = [];
    const book = admission.book.state;
    await checkpointer.save(0).write({ step, version, progress: 0, book, messages });
  }
  await publisher.publish(version);
  const history = await readHistory(broker.events, version, step);
  audit.remember(history.quarantined);
  const steps = [...history.steps];
  const metricsFile = await Journal.open(options.runDir, metricsJournal, steps);
  await broker.resetConsumer('scored.train');
  await broker.resetConsumer('scored.eval');

  failure.follow(leadership.signal);
  const { evaluations, evaluator } = await openEvaluations({
    ...options,
    publish: publish('eval'),
    newestVersion,
    past: history.evals,
    onResult: (result) => {
      checkpointer.scored(step + result.version - version, result.sampled);
    },
    signal: AbortSignal.any([stop, failure.signal]),
  });

  const secondsBefore = clock.seconds;
  const pace = new Pace(
    config,
    {
      progressBefore: opened.progress,
      stepBefore: step,
      maxSteps: settings.maxSteps ?? Infinity,
      maxSeconds: clock.limitSeconds - secondsBefore,
    },
    () => clock.seconds - secondsBefore,
  );
  const training = new Training({
    config,
    run,
    base,
    admission,
    unsettled,
    changes,
    publisher,
    checkpointer,
    tickets,
    pace,
    divergence: new DivergenceWatch(divergenceLimits(settings), steps),
    tally,
    audit,
    idle,
    failure,
    log,
    checkpointEverySteps: settings.checkpointEverySteps,
    surroundings: () => ({
      ...runWatch.metrics,
      ...publisher.metrics,
      ...audit.metrics,
      ...dropTotals(),
    }),
    versionsInUse: () => evaluations.pinnedVersions,
    onStep: async (trained: StepEvent) => {
      const metrics = { ...trained.metrics, ...evaluations.takeMetrics() };
      const event = { ...trained, metrics };
      steps.push(event);
      await broker.events.emit(event);
      await metricsFile.append(event);
      evaluations.consider(event.version);
    },
  });

  const prolonging = setInterval(
    () => {
      unsettled.prolong();
    },
    (1_000 * settings.leaseSeconds) / 3,
  );
  const over = new AbortController(); // the session's own end
  const listening = AbortSignal.any([over.signal, failure.signal]);
  const inBackground = [
    consume(
      broker,
      'scored.eval',
      ScoredGroup,
      { signal: listening, log, stage: 'learner', concurrency: 4 },
      ({ value }) => {
        evaluator.receive(value);
        return Promise.resolve();
      },
    ),
    watchDeadLetters(broker.deadLetters.read(listening), ({ ticketId, attempt }, death) => {
      const order = orderOf(ticketId);
      if (order === undefined) evaluator.die(ticketId);
      else intake.die(order, attempt, death);
    }),
  ].map((task) => failure.watch(task));

  async function evaluate(): Promise<EvalResult | undefined> {
    if (settings.evalProblems === 0) return undefined;
    const result = await evaluations.measure(admission.confirmedVersion);
    failure.signal.throwIfAborted();
    return result;
  }

  /** Trains to the end of the run, of its time, or until it is asked to stop. */
  async function train(): Promise<{ reason: EndReason; divergence?: Divergence | undefined }> {
    using time = clock.start();
    const ended = new AbortController();
    const until = AbortSignal.any([stop, time.signal]);
    const working = AbortSignal.any([until, ended.signal, failure.signal]);
    const byHand = { concurrency: 1, settle: 'by-hand' } as const;
    const inflow = [
      consume(
        broker,
        'scored.train',
        ScoredGroup,
        { signal: working, log, stage: 'learner', ...byHand },
        (delivery) => failure.watch(intake.receive(delivery)),
      ),
      issueTickets(
        {
          admission,
          tickets,
          intake,
          changes,
          publish: publish('train'),
          onReplaced: ({ seq }) => {
            unsettled.consume(seq);
          },
        },
        working,
      ),
    ].map((task) => failure.watch(task));
    try {
      const divergence = await training.run(until);
      if (divergence !== undefined) return { reason: 'diverged', divergence };
    } finally {
      ended.abort();
      await Promise.allSettled(inflow);
    }
    const reason = stop.aborted ? 'stopped' : admission.isComplete ? 'max_steps' : 'max_minutes';
    return { reason };
  }

  try {
    const before = history.evals[0]?.result ?? (await evaluate());
    const { reason, divergence } = stop.aborted ? { reason: 'stopped' as const } : await train();
    const after = divergence === undefined ? await evaluate() : undefined;
    return {
      reason,
      divergence,
      steps,
      before,
      after,
      version: admission.confirmedVersion,
      groups: admission.book.counts,
    };
  } finally {
    clearInterval(prolonging);
    over.abort();
    await Promise.allSettled(inBackground);
  }
}

/** Whether actors may sample through the backend; one that does not say may. */
function doesSample(client: TinkerClient, modelName: string): boolean {
  const capabilities = client.models.find(({ name }) => name === modelName)?.capabilities;
  return capabilities?.includes('sampling') ?? true;
}
