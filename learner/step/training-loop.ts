import type { GroupCounts } from '../../shared/wire/ledger.js';
import type { RunEnding } from '../stop/stop-conditions.js';

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
