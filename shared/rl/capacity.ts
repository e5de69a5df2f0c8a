export interface CapacityState {
  readonly groupsPerBatch: number;
  readonly maxStepsOffPolicy: number;
  /** The version that the confirmed steps have made. */
  readonly version: number;
  /**
   * The newest version that actors can sample with: behind `version` while one is on its way, ahead
   * of it when the actors heard of a step before its confirmation did.
   */
  readonly publishedVersion: number;
  /** Tickets issued and not yet trained or dropped, those of the step in progress included. */
  readonly outstanding: number;
  /** Steps that the run still wants, the one in progress included; may be Infinity. */
  readonly stepsLeft: number;
}

/**
 * How many tickets may be issued now: the capacity law,
 *
 *     outstanding + taken by the step in progress ≤ (max_steps_off_policy + 1) · groups_per_batch.
 *
 * A ticket issued now is sampled by `publishedVersion` or a newer one, so it must be trained by
 * version `publishedVersion + maxStepsOffPolicy` at the latest. The steps until then have room for
 * the bound's groups and no more; with that many ahead of it, it cannot come too late. A version
 * still on its way to the actors costs a step's worth of tickets, and a step that nobody wants gets
 * none.
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

/** The law's bound: no moment has more tickets outstanding than this. */
export function ticketBound(maxStepsOffPolicy: number, groupsPerBatch: number): number {
  return (maxStepsOffPolicy + 1) * groupsPerBatch;
}

/**
 * No learner can have issued a ticket of this order, nor of a higher one, whatever it did since its last
 * checkpoint. Groups without variance and deaths make room for ever more tickets before the next one, so
 * the budget is no bound; but each took a place in the stream. The last learner's last may come late.
 *
 * @param nextOrder of the checkpoint; 0 without one.
 * @param ticketsSoFar that the stream of tickets was ever given, of whatever kind.
 * @param bound of the tickets outstanding.
 */
export function issuedBelow(nextOrder: number, ticketsSoFar: number, bound: number): number {
  return nextOrder + ticketsSoFar + bound;
}
