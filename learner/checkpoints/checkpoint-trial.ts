import type { Consumed, SavedState } from './checkpointer.js';

/** A saved state, and what its weights have consumed, for when it becomes the run's checkpoint. */
export interface Candidate {
  readonly step: number;
  readonly state: SavedState;
  readonly consumed: () => Consumed;
}

/**
 * What a step made of the weights is first seen by the passes of the step after it. So a saved state is
 * on probation until that one is judged, and only then becomes the run's checkpoint, or is deleted.
 */
export class CheckpointTrial {
  #candidate: Candidate | undefined;
  #isHealthy = true; // the newest step

  /** Whether the weights may be gone back to, as far as is known. */
  get isHealthy(): boolean {
    return this.#isHealthy;
  }

  /**
   * A step was judged.
   *
   * @param next the state that was saved behind it, if one was.
   * @returns when what this decides about is written, or deleted.
   */
  async judged(isHealthy: boolean, next: Candidate | undefined): Promise<void> {
    const candidate = this.#candidate;
    this.#isHealthy = isHealthy;
    this.#candidate = isHealthy ? next : undefined;
    if (isHealthy) await candidate?.state.write(candidate.consumed());
    else await Promise.all([candidate?.state.discard(), next?.state.discard()]);
  }

  /** No step will come that could tell more; `last`, if given, is taken for what it is. */
  async end(last?: Candidate): Promise<void> {
    const candidate = this.#candidate;
    this.#candidate = undefined;
    await last?.state.write(last.consumed());
    if (candidate?.step !== last?.step) await candidate?.state.discard();
  }
}
