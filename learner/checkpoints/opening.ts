import type { Broker } from '../../shared/broker/broker.js';
import type { Rewind } from '../../shared/rl/staleness.js';
import type { Logger } from '../../shared/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { CurriculumState } from '../../shared/wire/curriculum-state.js';
import type { SavedState } from '../../shared/wire/ledger.js';
import type { RunConfig } from '../../shared/wire/run-config.js';
import type { BookState } from '../groups/group-book.js';

/** Where a learner starts: from nothing, or from what the last checkpoint says. */
export interface OpenedRun {
  readonly run: TrainingRun;
  readonly step: number;
  readonly version: number; // to publish the weights as
  readonly isResumed: boolean;
  readonly progress: number; // of the run, 0 to 1
  readonly curriculum: CurriculumState | undefined;
  readonly book: BookState | undefined;
  readonly rewinds: readonly Rewind[]; // that the run has gone through
  readonly state: { readonly step: number; readonly path: string } | undefined; // restored from
  readonly states: readonly SavedState[]; // that earlier lives have kept
}

/**
 * Creates the run with the backend, or restores it from the ledger's checkpoint. Restored weights get
 * a version number above all that were ever published: actors know versions that only rise, and the
 * ones between may differ from what is trained now. The ledger knows of it before anybody can sample
 * by that number, so that another crash, before the next checkpoint, does not make us forget it.
 */
export async function openRun(
  broker: Pick<Broker, 'ledger' | 'policy'>,
  client: Pick<TinkerClient, 'createLoraModel' | 'restoreLoraModel'>,
  config: RunConfig,
  log: Logger,
): Promise<OpenedRun> {
  const { rank, seed } = config.lora;
  const model = { baseModel: config.model.name, rank, seed };
  const checkpoint = await broker.ledger.read();
  if (checkpoint === undefined) {
    const run = await client.createLoraModel(model);
    const nothing = {
      curriculum: undefined,
      book: undefined,
      rewinds: [],
      state: undefined,
      states: [],
    };
    return { run, step: 0, version: 0, progress: 0, isResumed: false, ...nothing };
  }

  const { step, progress, statePath, nextOrder, consumedBelow, consumedAbove, counts } = checkpoint;
  log.info({ step, statePath }, 'resuming from the last checkpoint');
  const run = await client.restoreLoraModel({ ...model, statePath });
  const newest = await broker.policy.current();
  const version = Math.max(checkpoint.version, (newest?.version ?? -1) + 1);
  // One with this number was on its way when its learner died, and nobody has seen the version.
  const rewinds = (checkpoint.rewinds ?? []).filter(({ from }) => from < version);
  if (version > checkpoint.version) {
    rewinds.push({ from: version, to: checkpoint.version });
    await broker.ledger.write({ ...checkpoint, rewinds });
  }
  return {
    run,
    step,
    version,
    progress,
    curriculum: checkpoint.curriculum,
    isResumed: true,
    book: { nextOrder, consumedBelow, consumedAbove, counts },
    rewinds,
    state: { step, path: statePath },
    states: checkpoint.states ?? [],
  };
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
