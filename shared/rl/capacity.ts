export interface CapacityState {
  readonly groupsPerBatch: number;
  readonly maxStepsOffPolicy: number;
  /** The version that the confirmed steps have produced. */
  readonly version: number;
  /**
   * The lowest version that may sample a ticket issued now: below `version` while one is being published, above
   * it when a version is published before its step is confirmed.
   */
  readonly samplingVersion: number;
  /** Tickets issued and not yet trained or dropped, including those of the step in progress. */
  readonly outstanding: number;
  /** Steps left in the run, including the one in progress; may be Infinity. */
  readonly stepsLeft: number;
}

/**
 * The number of tickets that may be issued now, by the capacity law:
 *
 *     outstanding ≤ (max_steps_off_policy + 1) · groups_per_batch.
 *
 * A ticket issued now is sampled by `samplingVersion` or a newer one, so it must be trained by
 * version `samplingVersion + maxStepsOffPolicy` at the latest. The steps until then can train
 * exactly the bound's groups, so with no more tickets outstanding none is too late. A version not yet
 * published to the actors costs one step's tickets, and no tickets are issued beyond the last
 * step.
 *
 * Source: AReaL (Fu et al. 2025, arXiv:2505.24298), its `(η + v + 1)·B - (accepted + running)`,
 * made exact per group by `chooseGroups`.
 */
export function ticketRoom(state: CapacityState): number {
  const behind = Math.max(0, state.version - state.samplingVersion);
  const stepsInTime = state.maxStepsOffPolicy + 1 - behind;
  const steps = Math.max(0, Math.min(stepsInTime, state.stepsLeft));
  return Math.max(0, steps * state.groupsPerBatch - state.outstanding);
}

/** The ticket queue at one moment. */
export interface TicketDemand {
  /** Tickets that wait for an actor. */
  readonly undelivered: number;
  /** Groups that actors could begin now, and for which they wait for a ticket. */
  readonly requests: number;
}

/**
 * The number of tickets that actors want now, within the room of the law: one for each that waits, and a few more, so
 * that an actor that finishes a group finds its next ticket in the queue.
 *
 * A ticket reserves a place in the training order from the moment of its issue, so complete groups wait for tickets that
 * no actor has taken. Tickets issued just in time reserve no such places: every group is as much younger when it is
 * trained as it would have waited for them.
 *
 * @param ahead tickets that may wait for an actor.
 */
export function ticketsWanted({ undelivered, requests }: TicketDemand, ahead: number): number {
  return Math.max(0, ahead + requests - undelivered);
}

/** How many tickets wait for an actor by default: a quarter of a batch, which makes data a quarter of a version older. */
export function usualTicketsAhead(groupsPerBatch: number): number {
  return Math.ceil(groupsPerBatch / 4);
}

/** The law's bound: the maximum number of outstanding tickets at any time. */
export function ticketBound(maxStepsOffPolicy: number, groupsPerBatch: number): number {
  return (maxStepsOffPolicy + 1) * groupsPerBatch;
}

/**
 * An upper bound on the orders of the tickets that learners have issued since the checkpoint. The law alone gives
 * none, since skipped and dead tickets make room for more. But the stream has stored every issued ticket, so there
 * are at most `ticketsSoFar`, and up to `bound` that the previous learner was still sending.
 *
 * @param nextOrder that of the checkpoint; 0 without one.
 * @param ticketsSoFar number of tickets of any kind ever published to the ticket stream.
 * @param bound maximum number of outstanding tickets.
 */
export function issuedBelow(nextOrder: number, ticketsSoFar: number, bound: number): number {
  return nextOrder + ticketsSoFar + bound;
}
