import type { RunConfig } from '../../shared/run/run-config.js';
import { ticketBound, ticketRoom } from '../../shared/rl/capacity.js';
import {
  stalenessOfNewest,
  type Rewind,
  rewindsInReach,
  staleness as stalenessOf,
} from '../../shared/rl/staleness.js';
import { chooseGroups, nextInOrder, type WindowTicket } from '../../shared/rl/window.js';
import { type LimiterOptions, TicketLimiter } from '../tickets/ticket-limiter.js';
import { TicketTable, type TicketTableState } from '../tickets/ticket-table.js';

export interface AdmissionLimits
  extends
    Pick<
      RunConfig,
      'groupsPerBatch' | 'numSubsteps' | 'numMinibatches' | 'maxStepsOffPolicy' | 'windowPolicy'
    >,
    Partial<Pick<RunConfig, 'sampleLag'>>,
    Pick<LimiterOptions, 'isBoundAdaptive' | 'isFrugal'> {
  readonly maxSteps: number; // of the run; Infinity: no limit
}

/** A ticket that may be issued now. */
export interface TicketOffer {
  readonly order: number;
  readonly attempt: number;
  readonly issuedAtVersion: number;
}

export interface Minibatch<Group> {
  readonly orders: readonly number[];
  readonly groups: readonly Group[];
  readonly version: number; // of the weights that train on it
  readonly staleness: readonly number[]; // of each group, in versions: the age of its oldest token
  readonly substep: number; // optimizer steps that the step in progress has taken before this minibatch
  readonly isLastOfSubstep: boolean;
  readonly isLastOfStep: boolean;
}

/**
 * Decides which tickets may be issued and which groups enter the next step. It combines the ticket table,
 * the capacity law (`ticketRoom`) and the window (`chooseGroups`), and it is synchronous and free of input
 * and output, so that all of off-policy control can be tested as a model.
 *
 * - **Capacity law**: at most `(maxStepsOffPolicy + 1) * groupsPerBatch` tickets are outstanding, checked after
 *   every issue. A ticket is issued only if the steps until its deadline have room for its group.
 * - **Limiter**: within the law, no more tickets are issued than the learner has a use for (`TicketLimiter`). Everything else
 *   goes by `maxStepsOffPolicy`.
 * - **Deadline**: the last version that may train on a group. Until the group arrives, it is
 *   `issuedAtVersion + maxStepsOffPolicy`. Then it follows from the version of the group's oldest token or, with
 *   policy `tokens`, of its newest, and rewinds are counted.
 * - **Window**: with policy `wait`, a group is taken only if every other ticket can still meet its deadline;
 *   with `drop`, slow groups are not waited for and become stale. With `tokens` they are not waited for either, and are
 *   trained on later without their tokens beyond the bound; the capacity law then limits only the work in progress.
 *
 * A step trains on one batch and makes one version. It consists of `numSubsteps` optimizer steps on equal
 * parts of the batch. The weights between substeps are never sampled with, so they have no version, and
 * staleness counts steps: substep k is k optimizer steps further off-policy than its staleness says.
 *
 * The version rises as soon as a step's last minibatch is cut, because the next minibatch is trained on top
 * of it, although the backend has not confirmed the step yet.
 */
export class Admission<Group> {
  readonly table: TicketTable<Group>;
  readonly limiter: TicketLimiter<Group>;
  readonly rewinds: readonly Rewind[];
  readonly #limits: AdmissionLimits;
  readonly #firstVersion: number;
  #version: number;
  #confirmedVersion: number;
  #confirmedSteps: number;
  #publishedVersion: number;
  #offer: TicketOffer | undefined; // being published to the actors
  #taken: number[] = []; // orders in the step in progress
  readonly #unconfirmed: number[][] = []; // orders of the steps before it, oldest first

  constructor(
    limits: AdmissionLimits,
    start: {
      readonly step: number; // steps that the weights were trained for
      readonly version: number; // under which the weights are, or will be, published
      readonly table?: TicketTableState;
      readonly rewinds?: readonly Rewind[];
    },
  ) {
    this.#limits = limits;
    this.rewinds = start.rewinds ?? [];
    this.#firstVersion = start.version;
    this.#version = this.#confirmedVersion = start.version;
    this.#confirmedSteps = start.step;
    this.#publishedVersion = start.version;
    // By the capacity law the n-th outstanding ticket is due, at the latest, in the step that takes the n-th group.
    const { groupsPerBatch } = limits;
    this.table =
      start.table === undefined
        ? new TicketTable<Group>()
        : TicketTable.restore(
            start.table,
            (rank) => start.version + Math.floor(rank / groupsPerBatch),
          );
    this.limiter = new TicketLimiter({ ...limits, minibatchSize: this.minibatchSize }, this.table);
  }

  /** The version of the weights that the step in progress trains. */
  get version(): number {
    return this.#version;
  }

  /** The version that the confirmed steps have made. */
  get confirmedVersion(): number {
    return this.#confirmedVersion;
  }

  /** The rewinds that a learner restored from the confirmed steps must know. */
  get rewindsInReach(): Rewind[] {
    return rewindsInReach(this.#confirmedVersion, this.#limits.maxStepsOffPolicy, this.rewinds);
  }

  /** Number of steps that the backend has confirmed. */
  get step(): number {
    return this.#confirmedSteps;
  }

  get publishedVersion(): number {
    return this.#publishedVersion;
  }

  /** The lowest version that may sample a ticket issued now; with a sample lag, the only one. */
  get #samplingVersion(): number {
    return Math.max(this.#firstVersion, this.#publishedVersion - (this.#limits.sampleLag ?? 0));
  }

  /** Confirmed steps whose weights are not published to the actors yet. */
  get publishLag(): number {
    return Math.max(0, this.#confirmedVersion - this.#publishedVersion);
  }

  /** Number of steps sent to the backend and not confirmed yet. */
  get unconfirmedSteps(): number {
    return this.#unconfirmed.length;
  }

  /** Whether all steps of the run have been sent to the backend. */
  get isComplete(): boolean {
    return this.#confirmedSteps + this.#unconfirmed.length >= this.#limits.maxSteps;
  }

  /** Groups per minibatch. */
  get minibatchSize(): number {
    return this.#substepSize / this.#limits.numMinibatches;
  }

  /** How many tickets may be issued now: those that the law allows and the learner has a use for. */
  get room(): number {
    return Math.max(0, Math.min(this.lawfulRoom, this.limiter.room));
  }

  /** How many tickets the capacity law allows to be issued now, for the current bound. */
  get lawfulRoom(): number {
    return ticketRoom({
      groupsPerBatch: this.#limits.groupsPerBatch,
      maxStepsOffPolicy: this.limiter.bound,
      version: this.#confirmedVersion,
      samplingVersion: this.#samplingVersion,
      outstanding: this.table.outstanding,
      stepsLeft: this.#limits.maxSteps - this.#confirmedSteps,
    });
  }

  /** Whether `offer` would offer a ticket. */
  get hasOffer(): boolean {
    return this.room > 0 || this.#nextRetry !== undefined;
  }

  /**
   * The number of groups that actors could be sampling: the tickets that no group has answered, and those that the
   * law and the limiter allow besides.
   */
  get samplable(): number {
    const unanswered = this.table
      .entries()
      .filter(({ state }) => state === 'issued' || state === 'retry');
    return unanswered.length + this.room;
  }

  get #nextRetry(): { readonly order: number } | undefined {
    return this.table.entries().find(({ state }) => state === 'retry');
  }

  /**
   * Returns the next ticket to issue: the second attempt of a ticket to retry, which replaces the first,
   * or else the next one of the sequence, if the law and the limiter leave room. The window reserves
   * the ticket's place until `issue` is called.
   */
  offer(): TicketOffer | undefined {
    const retried = this.#nextRetry;
    if (retried === undefined && this.room === 0) return undefined;
    this.#offer = {
      order: retried?.order ?? this.table.nextOrder,
      attempt: retried === undefined ? 0 : 1,
      issuedAtVersion: this.#samplingVersion,
    };
    return this.#offer;
  }

  /**
   * Records that the offered ticket was issued.
   *
   * @returns the stale group that it replaces, if it is a second attempt.
   */
  issue(): Group | undefined {
    if (this.#offer === undefined) throw new Error('no ticket was offered');
    const { order, attempt, issuedAtVersion } = this.#offer;
    this.#offer = undefined;
    const deadline = issuedAtVersion + this.#limits.maxStepsOffPolicy;
    const replaced = this.table.entry(order)?.group;
    if (attempt > 0) this.table.reissue(order, issuedAtVersion, deadline);
    else this.table.issue(issuedAtVersion, deadline);
    this.#assertLaw();
    return replaced;
  }

  /**
   * Records the group that arrived for a ticket.
   *
   * @param sampledBy the versions of the group's tokens.
   * @param attempt the attempt that the group answers, if not the one in the table.
   */
  arrive(order: number, group: Group, sampledBy: readonly number[], attempt?: number): void {
    const { maxStepsOffPolicy, windowPolicy } = this.#limits;
    const age = stalenessOf(this.#version, sampledBy, this.rewinds);
    const decisive =
      windowPolicy === 'tokens' ? stalenessOfNewest(this.#version, sampledBy, this.rewinds) : age;
    const deadline = this.#version + maxStepsOffPolicy - decisive;
    this.table.arrive(order, group, deadline, attempt, this.#version - age);
  }

  /**
   * Refuses groups that are too stale to train on: the backstop for the capacity law and the window.
   * Excluded groups are refused and their tickets reissued in the same way.
   */
  refuse(
    isExcluded: (group: Group) => boolean = () => false,
  ): { order: number; group: Group; outcome: 'reissue' | 'gone' }[] {
    return this.table
      .entries()
      .filter(
        ({ state, deadline, group }) =>
          state === 'arrived' && (deadline < this.#version || isExcluded(group!)),
      )
      .map(({ order, group }) => ({
        order,
        group: group!,
        outcome: this.table.retryOrEnd(order),
      }));
  }

  /** Cuts the next minibatch; undefined while a group that it needs has not arrived. */
  cut(): Minibatch<Group> | undefined {
    const { groupsPerBatch, maxStepsOffPolicy, windowPolicy } = this.#limits;
    if (this.isComplete) return undefined;
    const waiting: WindowTicket[] = this.table
      .entries()
      .filter(({ state }) => state === 'issued' || state === 'arrived')
      .map(({ order, deadline, state }) => ({ order, deadline, hasArrived: state === 'arrived' }));
    if (this.#offer !== undefined) {
      const { order, issuedAtVersion } = this.#offer;
      waiting.push({ order, deadline: issuedAtVersion + maxStepsOffPolicy, hasArrived: false });
    }
    const position = { version: this.#version, taken: this.#taken.length, groupsPerBatch };
    const orders =
      maxStepsOffPolicy === 0
        ? nextInOrder(waiting, this.minibatchSize)
        : chooseGroups(windowPolicy, waiting, position, this.minibatchSize);
    if (orders === undefined) return undefined;

    const version = this.#version;
    const staleness = orders.map((order) => version - this.table.entry(order)!.oldest!);
    const groups = this.table.take(orders);
    const substep = Math.floor(this.#taken.length / this.#substepSize);
    this.#taken.push(...orders);
    const isLastOfSubstep = this.#taken.length % this.#substepSize === 0;
    const isLastOfStep = this.#taken.length === groupsPerBatch;
    if (isLastOfStep) this.#closeStep(groupsPerBatch);
    return { orders, groups, version, staleness, substep, isLastOfSubstep, isLastOfStep };
  }

  /** Marks the groups of the oldest unconfirmed step as trained: the backend has confirmed it. */
  confirmStep(): void {
    const orders = this.#unconfirmed.shift();
    if (orders === undefined) throw new Error('no step waits for its confirmation');
    this.table.train(orders);
    this.limiter.forget(orders);
    this.#confirmedVersion += 1;
    this.#confirmedSteps += 1;
  }

  /**
   * Ends the step in progress early. The optimizer steps already taken cannot be undone, so they make
   * a shorter step; the remaining groups wait again.
   *
   * @param substeps optimizer steps already taken; 0: there is no step.
   */
  cutShort(substeps: number): void {
    const unused = this.#taken.slice(substeps * this.#substepSize);
    this.table.putBack(unused);
    this.limiter.forget(unused);
    if (substeps > 0) this.#closeStep(substeps * this.#substepSize);
    this.#taken = [];
  }

  recordPublished(version: number): void {
    this.#publishedVersion = Math.max(this.#publishedVersion, version);
  }

  /** Closes the step in progress with the first `groups` groups that it took. */
  #closeStep(groups: number): void {
    this.#unconfirmed.push(this.#taken.slice(0, groups));
    this.#taken = [];
    this.#version += 1;
  }

  get #substepSize(): number {
    return this.#limits.groupsPerBatch / this.#limits.numSubsteps;
  }

  #assertLaw(): void {
    const { outstanding } = this.table;
    const { maxStepsOffPolicy, groupsPerBatch } = this.#limits;
    const allowed = ticketBound(maxStepsOffPolicy, groupsPerBatch);
    if (outstanding > allowed) {
      throw new Error(`${outstanding} tickets are outstanding, the law allows ${allowed}`);
    }
  }
}
