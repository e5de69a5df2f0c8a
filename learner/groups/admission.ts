import type { RunConfig } from '../../shared/run/run-config.js';
import { ticketBound, ticketRoom } from '../../shared/rl/capacity.js';
import { deadline, type Rewind, rewindsInReach } from '../../shared/rl/staleness.js';
import { chooseGroups, nextInOrder, type WindowTicket } from '../../shared/rl/window.js';
import { TicketTable, type TicketTableState } from './ticket-table.js';

export interface AdmissionLimits
  extends
    Pick<
      RunConfig,
      'groupsPerBatch' | 'numSubsteps' | 'numMinibatches' | 'maxStepsOffPolicy' | 'windowPolicy'
    >,
    Partial<Pick<RunConfig, 'sampleLag'>> {
  readonly maxSteps: number; // of the run; Infinity: until something else ends it
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
  readonly staleness: readonly number[]; // of each group, in versions, as of the step that takes it
  readonly substep: number; // optimizer steps that the step in progress has spent before it
  readonly isLastOfSubstep: boolean;
  readonly isLastOfStep: boolean;
}

/**
 * Who may enter the next step, and who may be asked for: the ticket table, the capacity law and
 * the window, moved by what happens. Synchronous and free of input and output, so that the whole of
 * off-policy control can be tested as a model.
 *
 * A step trains on one batch and makes one version. It is one optimizer step, or `numSubsteps` of them
 * on equal parts of the batch; the weights between those are never sampled with, so they have no
 * version and staleness counts steps. What a later substep is further off-policy by is its number.
 *
 * The version counts on as soon as a step's last minibatch is cut: the next minibatch is trained on
 * top of it, although the backend has not confirmed the step yet.
 */
export class Admission<Group> {
  readonly table: TicketTable<Group>;
  readonly rewinds: readonly Rewind[];
  readonly #limits: AdmissionLimits;
  readonly #firstVersion: number;
  #version: number;
  #confirmedVersion: number;
  #confirmedSteps: number;
  #publishedVersion: number;
  #offer: TicketOffer | undefined; // on its way to the actors
  #taken: number[] = []; // by the step in progress
  readonly #unconfirmed: number[][] = []; // by the steps before it, oldest first

  constructor(
    limits: AdmissionLimits,
    start: {
      readonly step: number; // steps that the weights have behind them
      readonly version: number; // that the weights are, or are about to be, published as
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
    // By the law the n-th ticket in order can wait for its place in the queue, at most.
    const { groupsPerBatch } = limits;
    this.table =
      start.table === undefined
        ? new TicketTable<Group>()
        : TicketTable.restore(
            start.table,
            (rank) => start.version + Math.floor(rank / groupsPerBatch),
          );
  }

  /** Of the weights that the step in progress trains. */
  get version(): number {
    return this.#version;
  }

  /** Of the weights that the confirmed steps have made. */
  get confirmedVersion(): number {
    return this.#confirmedVersion;
  }

  /** What a learner that is restored from the confirmed steps must know of earlier ones. */
  get rewindsInReach(): Rewind[] {
    return rewindsInReach(this.#confirmedVersion, this.#limits.maxStepsOffPolicy, this.rewinds);
  }

  /** Steps that the backend has confirmed. */
  get step(): number {
    return this.#confirmedSteps;
  }

  get publishedVersion(): number {
    return this.#publishedVersion;
  }

  /** The version that a ticket issued now is sampled by, at least; with a lag, exactly. */
  get #samplingVersion(): number {
    return Math.max(this.#firstVersion, this.#publishedVersion - (this.#limits.sampleLag ?? 0));
  }

  /** Confirmed steps whose weights no actor can sample with yet: a matter of the wire, not of data. */
  get publishLag(): number {
    return Math.max(0, this.#confirmedVersion - this.#publishedVersion);
  }

  /** Steps handed to the backend and not confirmed yet. */
  get unconfirmedSteps(): number {
    return this.#unconfirmed.length;
  }

  /** Whether every step that the run wants has been handed to the backend. */
  get isComplete(): boolean {
    return this.#confirmedSteps + this.#unconfirmed.length >= this.#limits.maxSteps;
  }

  /** Groups of a minibatch. */
  get minibatchSize(): number {
    return this.#substepSize / this.#limits.numMinibatches;
  }

  /** How many tickets may be issued now. */
  get room(): number {
    return ticketRoom({
      groupsPerBatch: this.#limits.groupsPerBatch,
      maxStepsOffPolicy: this.#limits.maxStepsOffPolicy,
      version: this.#confirmedVersion,
      publishedVersion: this.#samplingVersion,
      outstanding: this.table.outstanding,
      stepsLeft: this.#limits.maxSteps - this.#confirmedSteps,
    });
  }

  /**
   * The next ticket to issue, if the law leaves room for one: a stale ticket's second attempt, which
   * takes the place of the first, or else the next of the sequence. Until `issue` says that the
   * actors have it, its place is kept.
   */
  offer(): TicketOffer | undefined {
    const stale = this.table.entries().find(({ state }) => state === 'stale');
    if (stale === undefined && this.room === 0) return undefined;
    this.#offer = {
      order: stale?.order ?? this.table.nextOrder,
      attempt: stale === undefined ? 0 : 1,
      issuedAtVersion: this.#samplingVersion,
    };
    return this.#offer;
  }

  /**
   * The offered ticket is with the actors.
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
   * @param sampledBy the versions of the group's tokens.
   * @param attempt at the ticket that the group is the answer to, if not the one in the table.
   */
  arrive(order: number, group: Group, sampledBy: readonly number[], attempt?: number): void {
    const { maxStepsOffPolicy } = this.#limits;
    const lastVersion = deadline(this.#version, sampledBy, maxStepsOffPolicy, this.rewinds);
    this.table.arrive(order, group, lastVersion, attempt);
  }

  /**
   * Refuses what has become too stale to train on: the backstop behind the law and the window. So it
   * does with what must not be trained on for another reason, which is asked for once more, too.
   */
  refuseStale(
    isBarred: (group: Group) => boolean = () => false,
  ): { order: number; group: Group; outcome: 'reissue' | 'gone' }[] {
    return this.table
      .entries()
      .filter(
        ({ state, deadline, group }) =>
          state === 'arrived' && (deadline < this.#version || isBarred(group!)),
      )
      .map(({ order, group }) => ({
        order,
        group: group!,
        outcome: this.table.refuseAsStale(order),
      }));
  }

  /** The next minibatch; undefined while the groups that it must have are not all here. */
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
    const place = { version: this.#version, taken: this.#taken.length, groupsPerBatch };
    const orders =
      maxStepsOffPolicy === 0
        ? nextInOrder(waiting, this.minibatchSize)
        : chooseGroups(windowPolicy, waiting, place, this.minibatchSize);
    if (orders === undefined) return undefined;

    const staleness = orders.map(
      (order) => this.#version + maxStepsOffPolicy - this.table.entry(order)!.deadline,
    );
    const groups = this.table.take(orders);
    const substep = Math.floor(this.#taken.length / this.#substepSize);
    this.#taken.push(...orders);
    const isLastOfSubstep = this.#taken.length % this.#substepSize === 0;
    const isLastOfStep = this.#taken.length === groupsPerBatch;
    if (isLastOfStep) this.#close(groupsPerBatch);
    return { orders, groups, staleness, substep, isLastOfSubstep, isLastOfStep };
  }

  /** The backend confirmed the oldest step that it was handed: its groups are trained. */
  confirmStep(): void {
    const orders = this.#unconfirmed.shift();
    if (orders === undefined) throw new Error('no step waits for its confirmation');
    this.table.train(orders);
    this.#confirmedVersion += 1;
    this.#confirmedSteps += 1;
  }

  /**
   * The step in progress will not be completed. The optimizer steps that it has spent already cannot
   * be taken back, so with them it is a shorter step; what is left of its groups waits again.
   *
   * @param substeps optimizer steps that it has spent; 0: there is no step.
   */
  cutShort(substeps: number): void {
    this.table.putBack(this.#taken.slice(substeps * this.#substepSize));
    if (substeps > 0) this.#close(substeps * this.#substepSize);
    this.#taken = [];
  }

  publish(version: number): void {
    this.#publishedVersion = Math.max(this.#publishedVersion, version);
  }

  /** The step in progress has all of its groups: the first so many that it took. */
  #close(groups: number): void {
    this.#unconfirmed.push(this.#taken.slice(0, groups));
    this.#taken = [];
    this.#version += 1;
  }

  get #substepSize(): number {
    return this.#limits.groupsPerBatch / this.#limits.numSubsteps;
  }

  #assertLaw(): void {
    const { maxStepsOffPolicy, groupsPerBatch } = this.#limits;
    const bound = ticketBound(maxStepsOffPolicy, groupsPerBatch);
    if (this.table.outstanding > bound) {
      throw new Error(`${this.table.outstanding} tickets are outstanding, the law allows ${bound}`);
    }
  }
}
