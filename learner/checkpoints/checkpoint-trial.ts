import type { Consumed, PendingState } from './checkpointer.js';

/** A saved state that may become the run's checkpoint, and what its weights have consumed. */
export interface Candidate {
  readonly step: number;
  readonly state: PendingState;
  readonly consumed: () => Consumed;
}

/**
 * Holds a saved state until the step after it has been judged: only the passes of that step show whether
 * its weights are healthy. Then the state becomes the run's checkpoint or is deleted.
 */
export class CheckpointTrial {
  #candidate: Candidate | undefined;
  #isHealthy = true;

  /** Whether the newest step was healthy, so that its weights are worth keeping. */
  get isHealthy(): boolean {
    return this.#isHealthy;
  }

  /**
   * Settles the state of the step before, and holds `next`, the state that was saved after this step.
   *
   * @param isHealthy the verdict on this step.
   * @returns once the settled state is written or deleted.
   */
  async settle(isHealthy: boolean, next: Candidate | undefined): Promise<void> {
    const candidate = this.#candidate;
    this.#isHealthy = isHealthy;
    this.#candidate = isHealthy ? next : undefined;
    if (isHealthy) await candidate?.state.write(candidate.consumed());
    else await Promise.all([candidate?.state.discard(), next?.state.discard()]);
  }

  /** Ends without a further step: writes `last`, if given, unjudged, and deletes the state that is still held. */
  async end(last?: Candidate): Promise<void> {
    const candidate = this.#candidate;
    this.#candidate = undefined;
    await last?.state.write(last.consumed());
    if (candidate?.step !== last?.step) await candidate?.state.discard();
  }
}
