import type { Broker } from '../../shared/broker/broker.js';
import type { Leadership } from '../../shared/broker/leadership.js';
import { errorText } from '../../shared/base/errors.js';
import type { Rewind } from '../../shared/rl/staleness.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { BadRequest, Unavailable } from '../../shared/tinker/errors.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { CurriculumState } from '../../shared/wire/curriculum-state.js';
import type { Checkpoint, SavedState, TicketKey } from '../../shared/wire/ledger.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { TicketTableState } from '../groups/ticket-table.js';
import { type CheckpointStore, ledger } from './checkpoint-store.js';
import { deleteOrphans } from './retention.js';
import { nothingToRestore, type Traces } from './traces.js';

/** Where a learner starts: from nothing, or from what the last checkpoint says. */
export interface OpenedRun {
  readonly run: TrainingRun;
  readonly step: number;
  readonly version: number; // to publish the weights as
  readonly isResumed: boolean;
  readonly progress: number; // of the run, 0 to 1
  readonly curriculum: CurriculumState | undefined;
  readonly table: TicketTableState | undefined;
  readonly ticketKey: TicketKey | undefined; // that the checkpoint's tickets were issued with
  readonly rewinds: readonly Rewind[]; // that the run has gone through
  readonly state: { readonly step: number; readonly path: string } | undefined; // restored from
  readonly states: readonly SavedState[]; // that earlier lives have kept
  readonly usualHoldSeconds: number | undefined; // of a ticket
}

export interface OpeningOptions {
  readonly broker: Pick<Broker, 'run' | 'policy' | 'events'>;
  readonly traces: Traces; // of the run, before anything of it was opened
  readonly client: Pick<
    TinkerClient,
    'createLoraModel' | 'restoreLoraModel' | 'listCheckpoints' | 'deleteCheckpoint'
  >;
  readonly checkpoints: Pick<CheckpointStore, 'found' | 'write'>;
  readonly leadership: Pick<Leadership, 'confirm'>;
  readonly config: Pick<RunConfig, 'lora' | 'model'>;
  readonly log: Logger;
}

/**
 * Creates the run with the backend, or restores it from its newest checkpoint whose state the backend
 * still has. Restored weights get a version number above all that were ever published: actors know
 * versions that only rise, and the ones between may differ from what is trained now. The ledger knows
 * of it before anybody can sample by that number, so that another crash, before the next checkpoint,
 * does not make us forget it.
 *
 * @throws {UserError} if the run has been trained and no checkpoint of it can be restored: to begin it
 * again would overwrite what there is of it.
 */
export async function openRun(options: OpeningOptions): Promise<OpenedRun> {
  const { broker, client, checkpoints, traces, config, log } = options;
  const { rank, seed } = config.lora;
  const model = { baseModel: config.model.name, rank, seed };
  if (traces.inNats.length === 0) {
    const run = await client.createLoraModel(model);
    const nothing = {
      curriculum: undefined,
      table: undefined,
      ticketKey: undefined,
      rewinds: [],
      state: undefined,
      states: [],
      usualHoldSeconds: undefined,
    };
    return { run, step: 0, version: 0, progress: 0, isResumed: false, ...nothing };
  }

  const failures: string[] = [];
  for await (const { checkpoint, where } of checkpoints.found()) {
    const { step, statePath } = checkpoint;
    log.info({ step, statePath }, 'resuming from the last checkpoint');
    const restored = await restore(client, { ...model, statePath });
    if ('failure' in restored) {
      failures.push(`the checkpoint of step ${step} in ${where}: ${restored.failure}`);
      log.warn(
        { step, where, statePath, reason: restored.failure },
        'checkpoint cannot be restored',
      );
      continue;
    }
    const isInLedger = where === ledger && failures.length === 0;
    if (!isInLedger) log.warn({ step, where, failures }, 'the ledger is damaged; run recovered');
    return resume(options, restored.run, checkpoint, isInLedger);
  }
  throw nothingToRestore(broker.run, traces, failures);
}

async function resume(
  { broker, client, checkpoints, leadership, log }: OpeningOptions,
  run: TrainingRun,
  checkpoint: Checkpoint,
  isInLedger: boolean,
): Promise<OpenedRun> {
  const { step, progress, statePath, nextOrder, consumedBelow, consumedAbove, counts } = checkpoint;
  const { states } = checkpoint;
  // A copy may be older than what the backend has, and who restores it by hand may want that.
  if (isInLedger && states !== undefined) {
    const needed = [...states, { path: statePath }];
    const confirmLead = () => leadership.confirm();
    await deleteOrphans({ client, policy: broker.policy, states: needed, confirmLead, log });
  }
  const version = Math.max(checkpoint.version, (await newestVersion(broker)) + 1);
  // One with this number was on its way when its learner died, and nobody has seen the version.
  const rewinds = (checkpoint.rewinds ?? []).filter(({ from }) => from < version);
  if (version > checkpoint.version) rewinds.push({ from: version, to: checkpoint.version });
  if (version > checkpoint.version || !isInLedger) {
    await checkpoints.write({ ...checkpoint, rewinds });
  }
  return {
    run,
    step,
    version,
    progress,
    curriculum: checkpoint.curriculum,
    isResumed: true,
    table: { nextOrder, consumedBelow, consumedAbove, counts },
    ticketKey: checkpoint.ticketKey,
    rewinds,
    state: { step, path: statePath },
    states: states ?? [],
    usualHoldSeconds: checkpoint.usualHoldSeconds,
  };
}

/** @returns why it cannot be restored, if the backend does not have the state or cannot read it. */
async function restore(
  client: OpeningOptions['client'],
  model: Parameters<OpeningOptions['client']['restoreLoraModel']>[0],
): Promise<{ readonly run: TrainingRun } | { readonly failure: string }> {
  try {
    return { run: await client.restoreLoraModel(model) };
  } catch (caught) {
    if (caught instanceof BadRequest) return { failure: errorText(caught) };
    if (!(caught instanceof Unavailable)) throw caught;
    // TuFT answers 500 where it does not have a state, which a server in trouble does as well.
    const { runId } = parseTinkerPath(model.statePath);
    const left = await client.listCheckpoints(runId).catch(() => undefined);
    if (left?.some(({ path }) => path === model.statePath) ?? true) throw caught;
    return { failure: `the backend does not have ${model.statePath}` };
  }
}

/** The highest version that was ever published, wherever that is still known; -1 if none is. */
async function newestVersion({ policy, events }: OpeningOptions['broker']): Promise<number> {
  const [current, versions, announced] = await Promise.all([
    policy.current(),
    policy.versions(),
    events.newest('version'),
  ]);
  return Math.max(current?.version ?? -1, versions.at(-1) ?? -1, announced?.version ?? -1);
}

/**
 * The base model, if the run is held near it: an adapter that is never trained, whose product is 0. A
 * forward pass of it brings all logprobs of a minibatch by one request, at the run's temperature,
 * where a sampling session of the base takes a request a rollout and knows no temperature. It has
 * the run's own rank, since a server may have prepared for no other.
 */
export async function openBase(
  client: Pick<TinkerClient, 'createLoraModel'>,
  { extraTerms, model, lora }: Pick<RunConfig, 'extraTerms' | 'model' | 'lora'>,
): Promise<TrainingRun | undefined> {
  if (extraTerms.klPenalty === 0) return undefined;
  return client.createLoraModel({ baseModel: model.name, rank: lora.rank, seed: lora.seed });
}
