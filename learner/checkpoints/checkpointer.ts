import pLimit from 'p-limit';
import { Gauge } from 'prom-client';
import { errorText, PermanentError, UserError } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TinkerClient } from '../../shared/tinker/client.js';
import type { Rewind } from '../../shared/rl/staleness.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { stateName } from '../../shared/wire/checkpoint-names.js';
import {
  type Checkpoint,
  type CurriculumState,
  type SavedState,
  type TicketKey,
  type Usage,
  withComparableScores,
} from '../../shared/wire/ledger.js';
import type { TicketTableState } from '../tickets/ticket-table.js';
import { markHandled } from '../../shared/base/task-scope.js';
import type { IdleClock } from '../step/idle-clock.js';
import type { CheckpointStore } from './checkpoint-store.js';
import { statesToDelete, type RetentionRules } from './retention.js';
import type { Meter } from '../cost/meter.js';
import type { HeldGroup, UnackedGroups } from '../groups/unacked-groups.js';

const checkpointStep = new Gauge({
  name: 'rl_checkpoint_step',
  help: 'The step of the newest checkpoint in the ledger.',
});

/** What the weights of one step have consumed. */
export interface Consumed {
  readonly step: number;
  readonly version: number;
  readonly progress: number; // of the run, 0 to 1
  readonly table: TicketTableState;
  readonly rewinds: readonly Rewind[];
  readonly curriculum?: CurriculumState | undefined;
  readonly usage?: Usage | undefined; // of the run so far
  readonly messages: readonly HeldGroup[]; // to acknowledge
  /** Called once the checkpoint is in the ledger. */
  readonly onWritten?: () => void;
}

/** A state that the backend has saved, or is about to save. */
export interface PendingState {
  /** Makes the state the run's checkpoint, together with what its weights have consumed. */
  write(consumed: Consumed): Promise<void>;
  /** Deletes the state: the run must never restore these weights. */
  discard(): Promise<void>;
}

interface CheckpointerOptions extends Pick<RetentionRules, 'keepEverySteps'> {
  readonly checkpoints: Pick<CheckpointStore, 'write' | 'stateOnDisk'>;
  readonly client: Pick<TinkerClient, 'deleteCheckpoint'>;
  readonly run: Pick<TrainingRun, 'saveState'>;
  readonly ticketKey: TicketKey;
  /** Median hold time of a ticket; undefined while it is not known. */
  readonly usualHoldSeconds: () => number | undefined;
  readonly unacked: UnackedGroups;
  readonly meter: Pick<Meter, 'totals'>;
  readonly idle: IdleClock;
  /** Called with each state that the backend is about to save after a step. */
  readonly onSave?: ((step: number, path: Promise<string>) => void) | undefined;
  /** The checkpoint that the weights were restored from, if any. */
  readonly restored: Checkpoint | undefined;
  /** States kept by earlier sessions of the run. */
  readonly states: readonly SavedState[];
  readonly log: Logger;
}

/**
 * Writes checkpoints in the only order that loses nothing:
 *
 * 1. the backend confirms the saved state;
 * 2. the ledger names the state together with what its weights have consumed;
 * 3. the consumed messages are acknowledged.
 *
 * `CheckpointTrial` decides when a saved state is healthy enough for this.
 *
 * A crash before step 3 delivers those messages again, and the ticket table in the ledger shows that they
 * are consumed. An acknowledgement before step 2 would lose groups that no checkpoint covers.
 */
export class Checkpointer {
  readonly #options: CheckpointerOptions;
  readonly #oneAtATime = pLimit(1);
  #saved: { readonly step: number; readonly path: Promise<string> } | undefined;
  #states: SavedState[]; // that the backend has, oldest first
  readonly #discarded = new Set<string>(); // paths of states to delete
  readonly #scores: Map<number, number>; // of evaluated steps, whether their states are saved or not
  readonly #problems = new Map<number, number>(); // of the evaluation of each step, in order of evaluation
  #underEvaluation: () => readonly number[] = () => [];
  #written: Checkpoint | undefined; // the newest
  #writtenStep: number;

  constructor(options: CheckpointerOptions) {
    this.#options = options;
    const { restored } = options;
    this.#states = [...options.states];
    const isListed = this.#states.some(({ path }) => path === restored?.statePath);
    if (restored !== undefined && !isListed) {
      this.#states.push({ step: restored.step, path: restored.statePath });
    }
    this.#scores = new Map(
      this.#states.flatMap(({ step, score }) => (score === undefined ? [] : [[step, score]])),
    );
    this.#writtenStep = restored?.step ?? 0;
    this.#written = restored;
    if (restored !== undefined) {
      this.#saved = { step: restored.step, path: Promise.resolve(restored.statePath) };
    }
  }

  /** The step of the newest checkpoint in the ledger; a new run has one of step 0. */
  get writtenStep(): number {
    return this.#writtenStep;
  }

  /** Adds the evaluation scores of steps of earlier sessions, in order of evaluation. */
  remember(scores: Iterable<readonly [step: number, score: number, problems: number]>): void {
    for (const [step, score, problems] of scores) this.#setScore(step, score, problems);
  }

  #setScore(step: number, score: number, problems: number): void {
    this.#scores.set(step, score);
    this.#problems.delete(step); // so that it becomes the newest
    this.#problems.set(step, problems);
  }

  /** Keeps the states of steps under evaluation. @param steps returns those steps. */
  keepStatesOf(steps: () => readonly number[]): void {
    this.#underEvaluation = steps;
  }

  /**
   * Records the evaluation score of a step, so that the best state is kept; the state may be saved only later. If the
   * ledger already lists the state, this rewrites the newest checkpoint at once, because no further one may follow.
   *
   * @param problems held-out problems that the score is over.
   * @returns once the ledger has the score, or at once if the next checkpoint will include it.
   */
  scored(step: number, score: number, problems: number): Promise<void> {
    this.#setScore(step, score, problems);
    return this.#oneAtATime(async () => {
      const isListed = this.#states.some((state) => state.step === step);
      if (!isListed || this.#written === undefined) return; // the next checkpoint includes it
      await this.#writeLedger(this.#written);
      await this.#dropOldStates();
    });
  }

  /**
   * Saves the weights as they are after the operations called so far; a step that is saved already is
   * not saved again. The save is in the backend's queue when this returns.
   */
  save(step: number): PendingState {
    if (this.#saved?.step !== step) {
      const { run, idle } = this.#options;
      const path = idle.during(run.saveState(stateName(step)));
      this.#saved = { step, path };
      this.#options.onSave?.(step, path);
    }
    const saved = this.#saved;
    return {
      write: (consumed) =>
        markHandled(this.#oneAtATime(async () => this.#write(consumed, await saved.path))),
      discard: async () => {
        if (this.#saved === saved) this.#saved = undefined;
        this.#discarded.add(await saved.path);
        await this.#dropDiscarded();
      },
    };
  }

  async #write(consumed: Consumed, statePath: string): Promise<void> {
    const { unacked, log } = this.#options;
    const usualHoldSeconds = this.#options.usualHoldSeconds();
    const { step, version, progress, table, rewinds, curriculum, usage } = consumed;
    const { messages, onWritten } = consumed;
    if (!this.#states.some(({ path }) => path === statePath)) {
      this.#states.push({ step, path: statePath });
    }
    await this.#writeLedger({
      v: 1,
      step,
      version,
      statePath,
      ...table,
      consumedAbove: [...table.consumedAbove],
      rewinds: [...rewinds],
      progress,
      ...(curriculum !== undefined && { curriculum }),
      ...(usage !== undefined && { usage }),
      ...(usualHoldSeconds !== undefined && { usualHoldSeconds }),
      savedAt: Date.now(),
    });
    onWritten?.();
    await unacked.settle(messages);
    this.#writtenStep = step;
    checkpointStep.set(step);
    log.info({ step, version, groups: messages.length }, 'checkpoint written');
    await this.#dropOldStates();
  }

  async #writeLedger(checkpoint: Checkpoint): Promise<void> {
    const { checkpoints, ticketKey, meter } = this.#options;
    // Also where an evaluation has followed the checkpoint: no crash gives back what it has used.
    const usage = checkpoint.usage && { ...checkpoint.usage, meter: meter.totals };
    await checkpoints.write({
      ...checkpoint,
      ...(usage !== undefined && { usage }),
      ticketKey,
      states: withComparableScores(this.#scoredStates, this.#problems),
    });
    this.#written = checkpoint;
  }

  /** Deletes old states. The ledger lists a state until its deletion succeeds, so no crash can orphan it. */
  async #dropOldStates(): Promise<void> {
    const { keepEverySteps, checkpoints } = this.#options;
    const rules = { keepEverySteps, underEvaluation: this.#underEvaluation() };
    await this.#dropDiscarded();
    for (const { path } of statesToDelete(this.#scoredStates, rules, this.#problems)) {
      // While the disk is full the copy may be older, and after a power failure it may be the newest checkpoint left.
      if (path === checkpoints.stateOnDisk) continue;
      if (!(await this.#delete(path))) continue;
      this.#states = this.#states.filter((state) => state.path !== path);
    }
  }

  /** Deletes discarded states; a failed deletion is retried with the next checkpoint. */
  async #dropDiscarded(): Promise<void> {
    for (const path of this.#discarded) {
      if (await this.#delete(path)) this.#discarded.delete(path);
    }
  }

  get #scoredStates(): SavedState[] {
    return this.#states.map((state) => {
      const score = this.#scores.get(state.step);
      return score === undefined ? state : { ...state, score };
    });
  }

  /** @returns false if the deletion must be retried with the next checkpoint. */
  async #delete(path: string): Promise<boolean> {
    try {
      await this.#options.client.deleteCheckpoint(path);
      return true;
    } catch (caught) {
      this.#options.log.warn({ path, reason: errorText(caught) }, 'saved state not deleted');
      return caught instanceof PermanentError || caught instanceof UserError;
    }
  }
}
