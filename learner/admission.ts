import { ticketBound, ticketRoom } from '../shared/rl/capacity.js';
import { deadline, type Rewind } from '../shared/rl/staleness.js';
import { chooseGroups, type WindowTicket } from '../shared/rl/window.js';
import { GroupBook, type BookState } from './group-book.js';

export interface AdmissionLimits {
  readonly groupsPerBatch: number;
  readonly numMinibatches: number; // divides groupsPerBatch
  readonly maxStepsOffPolicy: number;
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
  readonly staleness: readonly number[]; // of each group, as of the version that trains on it
  readonly isLastOfStep: boolean;
}

/**
 * Who may enter the next optimizer step, and who may be asked for: the book of tickets, the capacity
 * law and the window, moved by what happens. Synchronous and free of input and output, so that the
 * whole of off-policy control can be tested as a model.
 *
 * The version counts on as soon as a step's last minibatch is cut: the next minibatch is trained on
 * top of it, although the backend has not confirmed the optimizer step yet.
 */
export class Admission<Group> {
  readonly book: GroupBook<Group>;
  readonly rewind: Rewind | undefined;
  readonly #limits: AdmissionLimits;
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
      readonly step: number; // optimizer steps that the weights have behind them
      readonly version: number; // that the weights are, or are about to be, published as
      readonly book?: BookState;
      readonly rewind?: Rewind | undefined;
    },
  ) {
    this.#limits = limits;
    this.rewind = start.rewind;
    this.#version = this.#confirmedVersion = start.version;
    this.#confirmedSteps = start.step;
    this.#publishedVersion = start.version;
    // By the law the n-th ticket in order can wait for its place in the queue, at most.
    const { groupsPerBatch } = limits;
    this.book =
      start.book === undefined
        ? new GroupBook<Group>()
        : GroupBook.restore(
            start.book,
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

  /** Optimizer steps that the backend has confirmed. */
  get step(): number {
    return this.#confirmedSteps;
  }

  get publishedVersion(): number {
    return this.#publishedVersion;
  }

  /** Steps handed to the backend and not confirmed yet. */
  get unconfirmedSteps(): number {
    return this.#unconfirmed.length;
  }

  /** Whether every step that the run wants has been handed to the backend. */
  get isComplete(): boolean {
    return this.#confirmedSteps + this.#unconfirmed.length >= this.#limits.maxSteps;
  }

  /** How many tickets may be issued now. */
  get room(): number {
    return ticketRoom({
      groupsPerBatch: this.#limits.groupsPerBatch,
      maxStepsOffPolicy: this.#limits.maxStepsOffPolicy,
      version: this.#confirmedVersion,
      publishedVersion: this.#publishedVersion,
      outstanding: this.book.outstanding,
      stepsLeft: this.#limits.maxSteps - this.#confirmedSteps,
    });
  }

  /**
   * The next ticket to issue, if the law leaves room for one: a stale ticket's second attempt, which
   * takes the place of the first, or else the next of the sequence. Until `issue` says that the
   * actors have it, its place is kept.
   */
  offer(): TicketOffer | undefined {
    const stale = this.book.entries().find(({ state }) => state === 'stale');
    if (stale === undefined && this.room === 0) return undefined;
    this.#offer = {
      order: stale?.order ?? this.book.nextOrder,
      attempt: stale === undefined ? 0 : 1,
      issuedAtVersion: this.#publishedVersion,
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
    const replaced = this.book.entry(order)?.group;
    if (attempt > 0) this.book.reissue(order, issuedAtVersion, deadline);
    else this.book.issue(issuedAtVersion, deadline);
    this.#assertLaw();
    return replaced;
  }

  /** @param sampledBy the versions of the group's tokens. */
  arrive(order: number, group: Group, sampledBy: readonly number[]): void {
    const { maxStepsOffPolicy } = this.#limits;
    this.book.arrive(
      order,
      group,
      deadline(this.#version, sampledBy, maxStepsOffPolicy, this.rewind),
    );
  }

  /** Refuses what has become too stale to train on: the backstop behind the law and the window. */
  refuseStale(): { order: number; group: Group; outcome: 'reissue' | 'gone' }[] {
    return this.book
      .entries()
      .filter(({ state, deadline }) => state === 'arrived' && deadline < this.#version)
      .map(({ order, group }) => ({
        order,
        group: group!,
        outcome: this.book.refuseAsStale(order),
      }));
  }

  /** The next minibatch; undefined while the groups that it must have are not all here. */
  cut(): Minibatch<Group> | undefined {
    const { groupsPerBatch, numMinibatches, maxStepsOffPolicy } = this.#limits;
    if (this.isComplete) return undefined;
    const waiting: WindowTicket[] = this.book
      .entries()
      .filter(({ state }) => state === 'issued' || state === 'arrived')
      .map(({ order, deadline, state }) => ({ order, deadline, hasArrived: state === 'arrived' }));
    if (this.#offer !== undefined) {
      const { order, issuedAtVersion } = this.#offer;
      waiting.push({ order, deadline: issuedAtVersion + maxStepsOffPolicy, hasArrived: false });
    }
    const orders = chooseGroups(
      waiting,
      { version: this.#version, taken: this.#taken.length, groupsPerBatch },
      groupsPerBatch / numMinibatches,
    );
    if (orders === undefined) return undefined;

    const staleness = orders.map(
      (order) => this.#version + maxStepsOffPolicy - this.book.entry(order)!.deadline,
    );
    const groups = this.book.take(orders);
    this.#taken.push(...orders);
    const isLastOfStep = this.#taken.length === groupsPerBatch;
    if (isLastOfStep) {
      this.#unconfirmed.push(this.#taken);
      this.#taken = [];
      this.#version += 1;
    }
    return { orders, groups, staleness, isLastOfStep };
  }

  /** The backend confirmed the oldest step that it was handed: its groups are trained. */
  confirmStep(): void {
    const orders = this.#unconfirmed.shift();
    if (orders === undefined) throw new Error('no step waits for its confirmation');
    this.book.train(orders);
    this.#confirmedVersion += 1;
    this.#confirmedSteps += 1;
  }

  /** The step in progress will not be finished: its groups wait again. */
  abandonStep(): void {
    this.book.putBack(this.#taken);
    this.#taken = [];
  }

  publish(version: number): void {
    this.#publishedVersion = Math.max(this.#publishedVersion, version);
  }

  #assertLaw(): void {
    const { maxStepsOffPolicy, groupsPerBatch } = this.#limits;
    const bound = ticketBound(maxStepsOffPolicy, groupsPerBatch);
    if (this.book.outstanding > bound) {
      throw new Error(`${this.book.outstanding} tickets are outstanding, the law allows ${bound}`);
    }
  }
}
