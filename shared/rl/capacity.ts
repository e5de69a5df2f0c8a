export interface CapacityState {
  readonly groupsPerBatch: number;
  readonly maxStepsOffPolicy: number;
  /** The version that the confirmed steps have produced. */
  readonly version: number;
  /**
   * The newest version that actors can sample with: below `version` while one is being published, above
   * it when a version is published before its step is confirmed.
   */
  readonly publishedVersion: number;
  /** Tickets issued and not yet trained or dropped, including those of the step in progress. */
  readonly outstanding: number;
  /** Steps left in the run, including the one in progress; may be Infinity. */
  readonly stepsLeft: number;
}

/**
 * The number of tickets that may be issued now, by the capacity law:
 *
 *     outstanding + taken by the step in progress ≤ (max_steps_off_policy + 1) · groups_per_batch.
 *
 * A ticket issued now is sampled by `publishedVersion` or a newer one, so it must be trained by
 * version `publishedVersion + maxStepsOffPolicy` at the latest. The steps until then can train
 * exactly the bound's groups, so with no more tickets outstanding none is too late. A version not yet
 * published to the actors costs one step's tickets, and no tickets are issued beyond the last
 * step.
 *
 * Source: AReaL (Fu et al. 2025, arXiv:2505.24298), its `(η + v + 1)·B - (accepted + running)`,
 * made exact per group by `chooseGroups`.
 */
export function ticketRoom(state: CapacityState): number {
  const behind = Math.max(0, state.version - state.publishedVersion);
  const stepsInTime = state.maxStepsOffPolicy + 1 - behind;
  const steps = Math.max(0, Math.min(stepsInTime, state.stepsLeft));
  return Math.max(0, steps * state.groupsPerBatch - state.outstanding);
}

/** The law's bound: the maximum number of outstanding tickets at any time. */
export function ticketBound(maxStepsOffPolicy: number, groupsPerBatch: number): number {
  return (maxStepsOffPolicy + 1) * groupsPerBatch;
}

/**
 * An order that no learner can have reached since its last checkpoint. Zero-variance groups and dead
 * tickets free capacity for further tickets before the next checkpoint, so the budget is no bound; but
 * each ticket took a place in the stream. The previous learner's last tickets may still arrive.
 *
 * @param nextOrder that of the checkpoint; 0 without one.
 * @param ticketsSoFar number of tickets of any kind ever published to the ticket stream.
 * @param bound maximum number of outstanding tickets.
 */
export function issuedBelow(nextOrder: number, ticketsSoFar: number, bound: number): number {
  return nextOrder + ticketsSoFar + bound;
}
