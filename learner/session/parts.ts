import type { CheckpointStore } from '../checkpoints/checkpoint-store.js';
import { Checkpointer } from '../checkpoints/checkpointer.js';
import type { OpenedRun } from '../checkpoints/opening.js';
import type { Traces } from '../checkpoints/traces.js';
import type { LearnerConfig } from '../config.js';
import type { Meter } from '../cost/meter.js';
import { TokenAccount } from '../cost/token-account.js';
import { Admission } from '../groups/admission.js';
import { isJustInTime } from '../tickets/ticket-issuer.js';
import { GroupReceiver } from '../groups/group-receiver.js';
import type { ArrivedGroup } from '../groups/check-scored-group.js';
import { Certificates } from '../audit/certificates.js';
import { GroupStats } from '../groups/group-stats.js';
import { HoldTimes } from '../tickets/hold-times.js';
import { UnackedGroups } from '../groups/unacked-groups.js';
import type { RunWatch } from '../report/run-watch.js';
import type { BatchPlan } from '../supervised/batch-plan.js';
import { deadLetterTicket } from '../tickets/dead-letter-ticket.js';
import type { TrainingClock } from './time-limits.js';
import { auditLimits, selectionLimits } from '../settings/run-control.js';
import { AdapterSupply } from '../publish/adapter-supply.js';
import { CanarySource } from '../publish/canary-source.js';
import { ActorAudit } from '../audit/actor-audit.js';
import { IdleClock } from '../step/idle-clock.js';
import { LearningRateSchedule } from '../step/learning-rate-schedule.js';
import { needsWholeBatch } from '../step/minibatch-pass.js';
import { Publisher } from '../publish/publisher.js';
import { RetainedVersion } from '../audit/retained-version.js';
import { SelectionAudit } from '../audit/selection-audit.js';
import { VersionAudit } from '../audit/version-audit.js';
import { BrokenPolicyWatch, isPolicyBroken } from '../stop/broken-policy-watch.js';
import { NoSignalWatch } from '../stop/no-signal-watch.js';
import { TicketSource } from '../tickets/ticket-source.js';
import type { Difficulties } from '../tickets/difficulty-mix.js';
import { Changes } from '../../shared/base/changes.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Leadership } from '../../shared/broker/leadership.js';
import { issuedBelow, ticketBound } from '../../shared/rl/capacity.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Dataset } from '../../shared/tasks/dataset.js';
import type { Example } from '../../shared/tasks/examples/example.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { Canary } from '../../shared/wire/canary.js';
import type { TicketIds } from '../../shared/wire/ticket-ids.js';

/** Dependencies of one learner session. */
export interface SessionOptions {
  readonly settings: LearnerConfig;
  readonly config: RunConfig;
  /** Stores the configuration where the other services wait for it; from then on the run keeps it. */
  readonly announce: () => Promise<void>;
  readonly dataset: Dataset;
  readonly difficulties: Difficulties | undefined; // to choose from, with --curriculum signal
  readonly supervised:
    | { readonly plan: BatchPlan; readonly heldOut: readonly Example[] }
    | undefined; // of a run on examples
  readonly vocabSize: number;
  readonly canaryTexts: Canary['texts'];
  readonly runDir: string;
  readonly traces: Traces; // of the run, before this session
  readonly runWatch: Pick<RunWatch, 'metrics' | 'live' | 'leases'>;
  readonly broker: Broker;
  readonly client: TinkerClient;
  readonly leadership: Leadership;
  readonly scope: TaskScope; // of this session's background work
  readonly clock: TrainingClock;
  readonly meter: Meter; // of this process
  /** Stops the learner: it discards the unfinished part of the step in progress, checkpoints and returns. */
  readonly stop: AbortSignal;
  readonly log: Logger;
}

/** The parts of a session in dependency order: each uses only those above it. */
export interface SessionParts {
  readonly changes: Changes;
  readonly idle: IdleClock;
  readonly unacked: UnackedGroups;
  readonly account: TokenAccount;
  readonly tickets: TicketSource;
  readonly groupStats: GroupStats;
  readonly noSignal: NoSignalWatch;
  readonly brokenPolicy: BrokenPolicyWatch;
  readonly admission: Admission<ArrivedGroup>;
  readonly holdTimes: HoldTimes; // of training tickets
  readonly audit: ActorAudit;
  readonly certificates: Certificates;
  readonly adapters: AdapterSupply;
  readonly publisher: Publisher;
  readonly checkpointer: Checkpointer;
  readonly receiver: GroupReceiver;
  readonly learningRates: LearningRateSchedule;
}

/** State that the session has created and its parts share. */
interface SessionState {
  readonly checkpoints: CheckpointStore;
  readonly ticketsSoFar: number; // published by earlier sessions, of either split
  readonly ids: TicketIds; // of the run's tickets
  readonly scope: TaskScope; // of the session
  readonly hasEnded: boolean; // whether an earlier session ended the run with the restored weights
}

/**
 * The step at which the run is expected to end, by `--max-steps` or `--epochs`; an estimate where problems are left out.
 * Infinity: neither is given.
 */
function expectedLastStep(
  { settings, supervised }: SessionOptions,
  { step, table }: OpenedRun,
): number {
  const stepsLeft = supervised?.plan.stepsFrom(table?.consumedBelow ?? 0) ?? Infinity;
  return Math.min(settings.maxSteps ?? Infinity, step + stepsLeft);
}

/** Creates the parts in the state of the last checkpoint, or of a new run. */
export function makeParts(
  options: SessionOptions,
  opened: OpenedRun,
  { checkpoints, ticketsSoFar, ids, scope, hasEnded }: SessionState,
): SessionParts {
  const { settings, config, dataset, broker, client, clock, log } = options;
  const { run, step, version, table, rewinds } = opened;
  const { maxStepsOffPolicy, groupsPerBatch } = config;
  const maxSteps = expectedLastStep(options, opened);
  const maxOutstanding = ticketBound(maxStepsOffPolicy, groupsPerBatch);

  const changes = new Changes();
  const idle = new IdleClock(() => performance.now() / 1_000);
  const unacked = new UnackedGroups();
  const account = new TokenAccount(opened.usage);
  const tickets = new TicketSource(
    config,
    dataset.train.map(({ id }) => id),
    {
      ids,
      margin: maxOutstanding,
      state: opened.curriculum,
      difficulties: options.difficulties,
    },
  );
  const groupStats = new GroupStats(
    (ticket) => tickets.isReplay(ticket),
    ({ problemId }) => dataset.problem(problemId)?.isRehearsed,
  );
  const noSignal = new NoSignalWatch(settings.stopZeroVariance, () => options.runWatch.live);
  const brokenPolicy = new BrokenPolicyWatch({
    groupsPerBatch,
    firstVersion: version,
    isBroken: (probe) => scope.track(isPolicyBroken(run, config.sampling.temperature, probe)),
    log,
  });
  // A batch that is sent as a whole leaves the backend idle while it is collected, whatever has arrived.
  const isFrugal =
    isJustInTime(config) && !needsWholeBatch(config) && settings.ticketsAhead === undefined;
  const admission = new Admission<ArrivedGroup>(
    { ...config, maxSteps, isFrugal },
    { step, version, ...(table === undefined ? {} : { table }), rewinds },
  );
  const holdTimes = new HoldTimes({
    fixedSeconds: settings.ticketDeadlineSeconds,
    leaseSeconds: settings.leaseSeconds,
    usualBefore: opened.usualHoldSeconds,
  });
  const { audit, certificates, retained, versionAudit, selection } = makeAudits(options);
  const adapters = new AdapterSupply({
    client,
    run,
    settings,
    runName: config.run,
    leases: () => broker.actors.list(),
    idle,
    signal: AbortSignal.any([options.stop, scope.signal]),
    log,
  });
  const publisher = new Publisher({
    broker,
    client,
    run,
    adapters,
    backendSamples: client.samples(config.model.name) !== 'no', // assumed where the backend does not say
    canaries: new CanarySource({
      run,
      texts: options.canaryTexts,
      temperature: config.sampling.temperature,
      arithmetic: settings.trainerClass,
      idle,
      log,
    }),
    certificates,
    versionAudit,
    idle,
    maxStepsOffPolicy,
    rewinds,
    consumedBelow: () => admission.table.consumedBelow,
    quarantined: () => audit.quarantined,
    confirmLead: () => options.leadership.confirm(),
    log,
  });
  const checkpointer = new Checkpointer({
    checkpoints,
    ticketKey: ids.key,
    usualHoldSeconds: () => holdTimes.median,
    client,
    run,
    unacked,
    meter: options.meter,
    idle,
    // At the start every version is the same.
    onSave: (saved, path) => {
      if (retained === undefined || saved === step) return;
      void scope.track(retained.offer(version + saved - step, path));
    },
    restored: opened.restored,
    states: opened.states,
    keepEverySteps: settings.keepEverySteps,
    log,
  });
  const receiver = new GroupReceiver({
    admission,
    tickets,
    unacked,
    account,
    changes,
    confirmLead: () => options.leadership.confirm(),
    newestVersion: () => publisher.newestVersion,
    isResumed: opened.isResumed,
    issuedBelow: opened.isResumed
      ? issuedBelow(admission.table.nextOrder, ticketsSoFar, maxOutstanding)
      : 0,
    log,
    groupStats,
    noSignal,
    brokenPolicy,
    onUnanswered: (ticket, reason) => {
      void scope.track(deadLetterTicket(broker, ticket, reason, log));
    },
    vocabSize: options.vocabSize,
    zeroVariance: config.zeroVariance,
    audit,
    certificates,
    versionAudit,
    selection,
  });
  const secondsBefore = clock.seconds;
  const learningRates = new LearningRateSchedule(
    config,
    {
      progressBefore: opened.progress,
      stepBefore: step,
      maxSteps,
      maxSeconds: clock.limitSeconds - secondsBefore,
    },
    () => clock.seconds - secondsBefore,
  );
  learningRates.checkStart(log, hasEnded);
  return {
    changes,
    idle,
    unacked,
    account,
    tickets,
    groupStats,
    noSignal,
    brokenPolicy,
    admission,
    holdTimes,
    audit,
    certificates,
    adapters,
    publisher,
    checkpointer,
    receiver,
    learningRates,
  };
}

/** What checks that actors sample with the versions that they name. */
function makeAudits({ settings, config, vocabSize, broker, client, log }: SessionOptions) {
  const { seed, maxStepsOffPolicy } = config;
  const emit: Broker['events']['emit'] = (event) => broker.events.emit(event);
  const isAdapterRounded = settings.adapterDtype === 'bf16';
  const audit = new ActorAudit({
    share: settings.auditShare,
    seed,
    limits: auditLimits(settings),
    emit,
    now: () => performance.now(),
    log,
  });
  const selection = new SelectionAudit({
    ...selectionLimits(settings),
    seed,
    vocabSize,
    trainer: settings.trainerClass,
    isAdapterRounded,
    maxStepsOffPolicy,
    audit,
    emit,
    log,
  });
  const { name: baseModel } = config.model;
  // Without a sampler the backend keeps a version's weights only if it is asked to.
  const retained =
    client.samples(baseModel) === 'no' && settings.auditVersionShare > 0
      ? new RetainedVersion({ client, model: { baseModel, ...config.lora }, log })
      : undefined;
  const versionAudit = new VersionAudit({
    client,
    retained,
    share: settings.auditVersionShare,
    seed,
    temperature: config.sampling.temperature,
    trainer: settings.trainerClass,
    isAdapterRounded,
    onDeceit: (actor, gap, bound, at) =>
      audit.convict({ actor, gap, bound, groups: 2, why: 'version' }, at),
    selection,
    log,
  });
  return { audit, certificates: new Certificates(), retained, versionAudit, selection };
}
