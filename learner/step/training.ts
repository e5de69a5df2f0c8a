import { mostUnconfirmedSteps } from '../../shared/rl/capacity.js';
import type { GroupCounts } from '../../shared/wire/ledger.js';
import type { Changes } from '../../shared/base/changes.js';
import type { Admission } from '../groups/admission.js';
import { countDrop } from '../groups/group-stats.js';
import type { ArrivedGroup } from '../groups/check-scored-group.js';
import { StopConditions, type RunEnding, type Watches } from '../stop/stop-conditions.js';
import type { ActorAudit } from '../audit/actor-audit.js';
import type { IdleCause } from './idle-clock.js';
import { CollectedStep, type CollectedStepOptions } from './collected-step.js';
import { StepPipeline, type StepPipelineOptions } from './step-pipeline.js';

/** How far the backend has confirmed the training. */
export interface Position {
  readonly step: number;
  readonly version: number; // that the confirmed steps have made
  readonly isComplete: boolean; // whether all steps of the run were sent to the backend
  readonly counts: GroupCounts; // of groups, or of examples
}

/** Trains the steps of a session, on groups or on examples. */
export interface TrainingLoop {
  readonly position: Position;

  /**
   * Trains until the run has all its steps, `stop` aborts or a stop condition holds; then publishes and checkpoints.
   *
   * @returns why the run was given up; undefined if it was not.
   */
  run(stop: AbortSignal): Promise<RunEnding | undefined>;
}

interface TrainingOptions extends CollectedStepOptions, Watches, StepPipelineOptions {
  readonly admission: Admission<ArrivedGroup>;
  readonly changes: Changes;
  readonly audit: Pick<ActorAudit, 'observe' | 'isQuarantined' | 'signal' | 'reason'>;
}

/**
 * The training loop: cuts minibatches as soon as their groups have arrived, sends each to the backend
 * without awaiting the one before, and sends the optimizer step after the last of each substep. A step
 * that was sent in full goes to the `StepPipeline`.
 */
export class Training implements TrainingLoop {
  readonly #options: TrainingOptions;
  readonly #stopConditions: StopConditions;
  readonly #pipeline: StepPipeline;
  #open: CollectedStep;

  constructor(options: TrainingOptions) {
    this.#options = options;
    this.#stopConditions = new StopConditions(options);
    this.#pipeline = new StepPipeline(options, this.#stopConditions);
    this.#open = new CollectedStep(options, options.admission.step + 1);
  }

  get position(): Position {
    const { step, confirmedVersion: version, isComplete, table } = this.#options.admission;
    return { step, version, isComplete, counts: table.counts };
  }

  /**
   * Trains until the run has all its steps, `stop` aborts or a stop condition holds. Then it finishes
   * the optimizer steps that the backend has in full, discards the other minibatches, publishes and
   * checkpoints. A run that diverges ends at once and keeps its last checkpoint.
   *
   * @returns why the run was given up; undefined if it was not.
   * @throws errors of the backend and the broker; `UserError` if the policy is broken before any training.
   */
  async run(stop: AbortSignal): Promise<RunEnding | undefined> {
    const { admission, changes, idle, scope, checkpointer } = this.#options;
    const stopConditions = this.#stopConditions;
    const until = AbortSignal.any([stop, scope.signal, stopConditions.signal]);
    this.#pipeline.start();
    while (!until.aborted && !admission.isComplete) {
      this.#refuseStale();
      const isBehind = admission.unconfirmedSteps >= mostUnconfirmedSteps;
      const minibatch = isBehind ? undefined : admission.cut();
      if (minibatch === undefined) {
        idle.waitFor(this.#idleCause());
        await changes.next(until);
        continue;
      }
      await this.#open.take(minibatch);
      if (minibatch.isLastOfStep) this.#close();
    }
    idle.waitFor(undefined);
    scope.signal.throwIfAborted();

    if (!stop.aborted && !admission.isComplete) stopConditions.findGroupCause(admission);
    if (!stopConditions.hasDiverged) this.#cutShort();
    await this.#pipeline.drained();
    await this.#pipeline.finish();
    return stopConditions.ending(checkpointer.writtenStep);
  }

  /** Closes the open step early, with the groups that its optimizer steps have used so far. */
  #cutShort(): void {
    const substeps = this.#open.cutShort();
    this.#options.admission.cutShort(substeps);
    if (substeps > 0) this.#close();
  }

  #close(): void {
    const sent = this.#open;
    this.#open = new CollectedStep(this.#options, sent.number + 1);
    this.#pipeline.take(sent);
  }

  #refuseStale(): void {
    const { admission, audit, account, config, groupStats, changes, log } = this.#options;
    const tooOld = config.windowPolicy === 'tokens' ? 'no_token_left' : 'stale';
    const isQuarantined = ({ scored }: ArrivedGroup) => audit.isQuarantined(scored.group.actor);
    for (const { order, group, outcome } of admission.refuse(isQuarantined)) {
      const reason = isQuarantined(group) ? 'quarantined' : tooOld;
      countDrop(group.scored, 'cut', reason);
      account.waste(group.seq, reason);
      if (reason === tooOld) groupStats.refused(group.scored);
      log.warn({ order, outcome, reason, sampledBy: group.sampledBy }, 'group refused');
      changes.notify();
    }
  }

  #idleCause(): IdleCause {
    const { admission } = this.#options;
    const arrived = admission.table.entries().filter(({ state }) => state === 'arrived').length;
    if (arrived >= admission.minibatchSize) return 'window';
    return admission.publishLag > 0 && admission.lawfulRoom === 0 ? 'version' : 'groups';
  }
}
