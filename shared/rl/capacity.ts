interface CapacityState {
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

/**
 * Steps that may be sent to the backend and not confirmed. Two keep it busy; more would only add to the work that a failure
 * loses.
 */
export const mostUnconfirmedSteps = 2;

/** The ticket queue at one moment. */
export interface TicketDemand {
  /** Tickets that wait for an actor. */
  readonly undelivered: number;
  /** Groups that actors could begin now, and for which they wait for a ticket. */
  readonly requests: number;
}

/**
 * The number of tickets to issue within the law: one for each group that actors could begin, plus `ahead`, minus those
 * queued, so that an actor that finishes a group finds its next ticket in the queue.
 *
 * A ticket reserves a place in the training order from the moment of its issue, so complete groups wait for tickets that
 * no actor has taken. Tickets issued just in time cause no such waits, so groups are that much younger when trained.
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

/** The number of tickets that the learner has a use for, and what it depends on. */
export interface TicketLimit {
  readonly tickets: number; // not an integer
  readonly idleShare: number; // of the learner's time, a mean over about 64 steps
}

/** How the learner fared during a step. */
export interface StepSupply {
  readonly seconds: number; // from the confirmation of the step before to its own
  readonly idleSeconds: number; // of these, in which the backend had no work
  /**
   * The fewest groups at hand whenever the backend had computed a minibatch: those that had arrived, or were sent to it and
   * not computed yet.
   */
  readonly fewestReady: number;
}

/**
 * Adapts the limit on tickets to the step that was just confirmed. It limits the outstanding tickets apart from those whose
 * groups the backend has computed. The law says how many tickets may be outstanding, and this limit how many are of
 * use: a group that waits for a backend that always has work only grows old.
 *
 * While the learner hardly ever waits, each step lowers the limit by a quarter of the groups that were never needed: those
 * at hand beyond the next minibatch and a reserve. A step in which the learner waited raises it by as many groups as could have been
 * trained in that time. So a learner that keeps waiting, for whatever reason, has the law's limit.
 *
 * The limit follows what the learner sees and needs no model of the rest: slower actors, fewer of them, evaluations, skipped groups
 * and longer answers all show as groups that come late.
 *
 * @param sizes.most the law's bound.
 * @returns a limit from `groupsPerBatch`, with which sampling and training take turns, to `most`.
 */
export function nextTicketLimit(
  limit: TicketLimit,
  { seconds, idleSeconds, fewestReady }: StepSupply,
  sizes: { readonly groupsPerBatch: number; readonly minibatchSize: number; readonly most: number },
): TicketLimit {
  const { groupsPerBatch, minibatchSize, most } = sizes;
  const share = seconds > 0 ? Math.min(1, idleSeconds / seconds) : 0;
  const idleShare = limit.idleShare + (share - limit.idleShare) / 64;
  const within = (tickets: number): TicketLimit => ({
    tickets: Math.min(most, Math.max(groupsPerBatch, tickets)),
    idleShare,
  });
  if (share > hardlyEver) return within(limit.tickets + (groupsPerBatch * share) / (1 - share));
  if (idleShare > hardlyEver) return within(limit.tickets);
  const reserve = groupsPerBatch / 4;
  return within(limit.tickets - Math.max(0, fewestReady - minibatchSize - reserve) / 4);
}

const hardlyEver = 0.01; // largest share of its time that a learner may wait and still count as hardly ever waiting

/** The bound on staleness for which tickets are issued, where it follows the effective sample size. */
export interface AdaptiveBound {
  readonly steps: number; // from 1 to the limit, which is the bound of the law
  readonly goodSteps: number; // in a row at this bound, with a high effective sample size
  /** Steps until everything is trained on that was issued under a larger bound. */
  readonly settling: number;
}

/** What a step has recorded about its data; undefined for a step without tokens. */
interface StepAge {
  readonly essRatio: number | undefined; // effective sample size as a share of the tokens
  readonly staleness: number | undefined; // mean of its groups, in steps
}

export const firstBound: AdaptiveBound = { steps: 1, goodSteps: 0, settling: 0 };

/**
 * Adapts the bound on staleness to a step, by the effective sample size (ESS) as a share of the step's tokens:
 *
 * - After three steps in a row with an ESS of at least 0.95 the bound rises by one. A step whose data is younger than
 *   the bound allows does not count: it shows nothing about older data.
 * - A step with an ESS below 0.9 sets the bound to half its value, or to half the age of its data if that is lower.
 * - A step in between keeps the bound.
 *
 * After a fall the bound stays until all groups requested before it are trained on: they still show the larger bound.
 *
 * It depends only on what the steps have recorded. So a learner that is restored from a checkpoint computes the same bound
 * from the history, and there is no state that could disagree with it. Only the room for tickets follows it: what may be trained
 * on is decided by the limit.
 */
export function nextBound(
  bound: AdaptiveBound,
  { essRatio, staleness }: StepAge,
  limit: number,
): AdaptiveBound {
  const { steps, settling } = bound;
  if (settling > 0) return { steps, goodSteps: 0, settling: settling - 1 };
  if (essRatio === undefined || staleness === undefined) return bound;
  if (essRatio < lowEss) {
    const halved = Math.max(1, Math.round(Math.min(steps, staleness) / 2));
    return { steps: halved, goodSteps: 0, settling: halved < steps ? steps + 1 : 0 };
  }
  if (essRatio < highEss) return { steps, goodSteps: 0, settling };
  if (staleness < steps - 0.5) return bound; // says nothing about data as old as the bound
  const goodSteps = bound.goodSteps + 1;
  if (goodSteps < stepsToRise) return { steps, goodSteps, settling };
  return { steps: Math.min(limit, steps + 1), goodSteps: 0, settling };
}

const lowEss = 0.9;
const highEss = 0.95;
const stepsToRise = 3;

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
