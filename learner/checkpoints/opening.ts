import type { Broker } from '../../shared/broker/broker.js';
import type { Leadership } from '../../shared/broker/leadership.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import type { Rewind } from '../../shared/rl/staleness.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import { BadRequest, Unavailable } from '../../shared/tinker/errors.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type {
  Checkpoint,
  CurriculumState,
  SavedState,
  TicketKey,
  Usage,
} from '../../shared/wire/ledger.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { TicketTableState } from '../tickets/ticket-table.js';
import { type CheckpointStore, ledgerLabel } from './checkpoint-store.js';
import { deleteOrphans } from './retention.js';
import { restoreError, type Traces } from './traces.js';

/** The starting point of a session: a new run, or one restored from its last checkpoint. */
export interface OpenedRun {
  readonly run: TrainingRun;
  readonly step: number;
  readonly version: number; // to publish the weights as
  readonly isResumed: boolean;
  readonly progress: number; // of the run, 0 to 1
  readonly curriculum: CurriculumState | undefined;
  readonly table: TicketTableState | undefined;
  readonly ticketKey: TicketKey | undefined; // of the checkpoint's tickets
  readonly rewinds: readonly Rewind[]; // of the run so far
  readonly restored: Checkpoint | undefined; // with the rewinds up to now
  readonly states: readonly SavedState[]; // kept by earlier sessions
  readonly usualHoldSeconds: number | undefined; // median hold time of a ticket
  readonly usage: Usage | undefined; // of the run so far
}

interface OpeningOptions {
  readonly broker: Pick<Broker, 'run' | 'policy' | 'events'>;
  readonly traces: Traces; // of the run, read before opening it
  readonly client: Pick<
    TinkerClient,
    'createLoraModel' | 'restoreLoraModel' | 'listCheckpoints' | 'deleteCheckpoint'
  >;
  readonly checkpoints: Pick<CheckpointStore, 'found' | 'write'>;
  readonly leadership: Pick<Leadership, 'confirm'>;
  readonly config: Pick<RunConfig, 'lora' | 'model' | 'from'>;
  readonly log: Logger;
}

/**
 * Creates the run at the backend, or restores it from the newest checkpoint whose state the backend
 * still has. Restored weights get a version number above all that were ever published, because actors
 * rely on rising versions and the lost versions in between had different weights. This rewind is written to
 * the ledger before an actor can sample with the new version, so that another crash before the next
 * checkpoint cannot lose it.
 *
 * @throws {UserError} if the run has been trained and no checkpoint of it can be restored: starting it
 *   again would overwrite its data.
 */
export async function openRun(options: OpeningOptions): Promise<OpenedRun> {
  const { broker, client, checkpoints, traces, config, log } = options;
  const { rank, seed } = config.lora;
  const model = { baseModel: config.model.name, rank, seed };
  if (traces.inNats.length === 0) {
    const run = await client.createLoraModel(model);
    if (config.from !== undefined) await loadStartingWeights(run, config.from, config);
    const nothing = {
      curriculum: undefined,
      table: undefined,
      ticketKey: undefined,
      rewinds: [],
      restored: undefined,
      states: [],
      usualHoldSeconds: undefined,
      usage: undefined,
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
    const isInLedger = where === ledgerLabel && failures.length === 0;
    if (!isInLedger) log.warn({ step, where, failures }, 'the ledger is damaged; run recovered');
    return resume(options, restored.run, checkpoint, isInLedger);
  }
  throw restoreError(broker.run, traces, failures);
}

/**
 * Gives a new run the weights that another has saved, without their optimizer.
 *
 * @throws {UserError} if the backend does not have them, or they are of another model, rank or alpha.
 */
async function loadStartingWeights(
  run: Pick<TrainingRun, 'loadState'>,
  { path, run: name = path }: NonNullable<RunConfig['from']>,
  { model, lora }: Pick<RunConfig, 'model' | 'lora'>,
): Promise<void> {
  try {
    await run.loadState(path, { optimizer: false });
  } catch (cause) {
    if (!(cause instanceof BadRequest)) throw cause;
    throw new UserError(
      `--from ${name}: the backend cannot load these weights into an adapter of rank ${lora.rank} of ${model.name} ` +
        `(${errorText(cause)}); start with the model, --lora-rank and --lora-alpha that they were trained with`,
      { cause },
    );
  }
}

async function resume(
  { broker, client, checkpoints, leadership, log }: OpeningOptions,
  run: TrainingRun,
  checkpoint: Checkpoint,
  isInLedger: boolean,
): Promise<OpenedRun> {
  const { step, progress, statePath, nextOrder, consumedBelow, consumedAbove, counts } = checkpoint;
  const { states } = checkpoint;
  // Not for a copy: it may be older than the states at the backend, which an operator may want to restore by hand.
  if (isInLedger && states !== undefined) {
    const needed = [...states, { path: statePath }];
    const confirmLead = () => leadership.confirm();
    await deleteOrphans({ client, policy: broker.policy, states: needed, confirmLead, log });
  }
  const version = Math.max(checkpoint.version, (await newestVersion(broker)) + 1);
  // If a rewind's `from` is this version or higher, that version was never published: the learner crashed first.
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
    restored: { ...checkpoint, rewinds },
    states: states ?? [],
    usualHoldSeconds: checkpoint.usualHoldSeconds,
    usage: checkpoint.usage,
  };
}

/** @returns the restored run, or the reason if the backend does not have the state or cannot read it. */
async function restore(
  client: OpeningOptions['client'],
  model: Parameters<OpeningOptions['client']['restoreLoraModel']>[0],
): Promise<{ readonly run: TrainingRun } | { readonly failure: string }> {
  try {
    return { run: await client.restoreLoraModel(model) };
  } catch (caught) {
    if (caught instanceof BadRequest) return { failure: errorText(caught) };
    if (!(caught instanceof Unavailable)) throw caught;
    // TuFT answers 500 if it does not have the state, but so does a server in trouble.
    const { runId } = parseTinkerPath(model.statePath);
    const left = await client.listCheckpoints(runId).catch(() => undefined);
    if (left?.some(({ path }) => path === model.statePath) ?? true) throw caught;
    return { failure: `the backend does not have ${model.statePath}` };
  }
}

/** Returns the highest version known to have been published; -1 if none is known. */
async function newestVersion({ policy, events }: OpeningOptions['broker']): Promise<number> {
  const [current, versions, announced] = await Promise.all([
    policy.current(),
    policy.versions(),
    events.newest('version'),
  ]);
  return Math.max(current?.version ?? -1, versions.at(-1) ?? -1, announced?.version ?? -1);
}

/**
 * Opens the base model if the run has a KL penalty: an adapter that is never trained, so its product is 0.
 * One forward pass of it returns all logprobs of a minibatch at the run's temperature, whereas a sampling
 * session of the base takes one request per rollout and has no temperature. It uses the run's rank, since
 * a server may support no other.
 */
export async function openBase(
  client: Pick<TinkerClient, 'createLoraModel'>,
  { extraTerms, model, lora }: Pick<RunConfig, 'extraTerms' | 'model' | 'lora'>,
): Promise<TrainingRun | undefined> {
  if (extraTerms.klPenalty === 0) return undefined;
  return client.createLoraModel({ baseModel: model.name, rank: lora.rank, seed: lora.seed });
}
