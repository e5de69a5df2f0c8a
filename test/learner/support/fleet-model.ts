import assert from 'node:assert/strict';
import { Admission, type AdmissionLimits } from '../../../learner/groups/admission.js';
import { ticketBound, ticketsWanted } from '../../../shared/rl/capacity.js';
import { smallestUsefulVersion } from '../../../shared/rl/staleness.js';

export interface Sampled {
  readonly order: number;
  readonly attempt: number;
  readonly sampledBy: readonly number[];
}

type IssuedTicket = Pick<Sampled, 'order' | 'attempt'> & { readonly issuedAtVersion: number };

interface Actor {
  ticket?: IssuedTicket | undefined;
  sampledBy: readonly number[];
}

/**
 * The outcome of a ticket, a function of its order alone. Only when all else waits are slow tickets sampled,
 * and delayed groups scored; no actor can give up the latter, so they may arrive too late.
 */
export type Fate = 'trainable' | 'slow' | 'delayed' | 'uniform' | 'dead';

/**
 * A run without clocks and sockets: a queue of tickets, actors that join, work, lose their lease and
 * leave, groups that are scored in any order, and the learner's own steps. Any possible move may happen at
 * any time; the capacity law and the balance of the table are asserted after every move.
 */
export class FleetModel {
  readonly admission: Admission<Sampled>;
  /** The orders of each step's groups, as they were taken. */
  readonly batches: number[][] = [];
  /** The steps as their events record them, and the bound for tickets after each. */
  readonly recorded: { step: number; metrics: Record<string, number>; bound: number }[] = [];
  stale = 0; // groups that arrived too late
  partlyStale = 0; // trained groups with tokens beyond the bound
  abandoned = 0; // groups that were given up during sampling, as they would have been too late
  readonly #limits: AdmissionLimits;
  readonly #fateOf: (order: number) => Fate;
  readonly #ahead: number;
  readonly #queue: IssuedTicket[] = [];
  readonly #actors: Actor[] = [];
  readonly #scored: Sampled[] = [];
  readonly #deadLetters: IssuedTicket[] = []; // of abandoned groups
  readonly #everPublished = new Set<string>(); // the stream accepts each attempt once
  readonly #settled = new Set<IssuedTicket>(); // removed from the stream
  #offered: IssuedTicket | undefined;
  #batch: number[] = [];
  readonly #ages: number[] = []; // of the groups of steps that are not confirmed
  readonly #computing: (readonly number[])[] = []; // minibatches in the backend's queue
  #nextToPublish = 1;

  /** @param ahead tickets that may wait for an actor; Infinity: they are issued as early as the law allows. */
  constructor(limits: AdmissionLimits, fateOf: (order: number) => Fate, ahead = Infinity) {
    this.#limits = limits;
    this.#fateOf = fateOf;
    this.#ahead = ahead;
    this.admission = new Admission<Sampled>(limits, { step: 0, version: 0 });
  }

  /** Makes the move that `choice` encodes, if it is possible now. @returns whether it was made. */
  move(choice: number): boolean {
    const { moves } = this;
    const isDone = moves[choice % moves.length]!(Math.floor(choice / moves.length));
    this.#assertBounds();
    return isDone;
  }

  /** Makes all moves in turn, slow tickets and delayed groups last, until no move is possible. */
  drain(): void {
    const { moves } = this;
    const helpful = moves.map((_, i) => i).filter((i) => !this.#isOptional(moves[i]!));
    const isBusy = (): boolean => helpful.some((i) => this.move(i));
    do {
      if (this.#queue.length > 0 && this.#isFullyBusy) this.#join();
    } while (
      isBusy() ||
      (this.#queue.length > 0 && this.#isFullyBusy) ||
      this.#finishSlow() ||
      this.#deliverDelayed()
    );
  }

  get moves(): readonly ((argument: number) => boolean)[] {
    return [
      this.#issue,
      this.#join,
      this.#leave,
      this.#loseLease,
      this.#lease,
      this.#adopt,
      this.#finish,
      this.#deliver,
      this.#reportAbandoned,
      this.#cut,
      this.#compute,
      this.#confirm,
      this.#publish,
    ];
  }

  /** The learner offers a ticket, and in a later move learns that the stream has it. */
  readonly #issue = (): boolean => {
    if (this.#offered === undefined) {
      const requests = this.#actors.filter(({ ticket }) => ticket === undefined).length;
      const demand = { undelivered: this.#queue.length, requests };
      if (ticketsWanted(demand, this.#ahead) === 0) return false;
      this.#offered = this.admission.offer();
      return this.#offered !== undefined;
    }
    const id = `${this.#offered.order}.${this.#offered.attempt}`;
    if (!this.#everPublished.has(id)) this.#queue.push(this.#offered);
    this.#everPublished.add(id);
    this.#offered = undefined;
    this.admission.issue();
    return true;
  };

  readonly #join = (): boolean => {
    this.#actors.push({ sampledBy: [] });
    return true;
  };

  /** An actor leaves or crashes: its ticket returns to the front of the queue. */
  readonly #leave = (who: number): boolean => {
    const [actor] = this.#actors.splice(who % Math.max(1, this.#actors.length), 1);
    if (actor?.ticket !== undefined) this.#giveBack(actor.ticket);
    return actor !== undefined;
  };

  /** A live actor loses its lease: another one may sample its ticket too, and both deliver. */
  readonly #loseLease = (who: number): boolean => {
    const actor = this.#busy(who);
    return actor !== undefined && this.#giveBack(actor.ticket);
  };

  #giveBack(ticket: IssuedTicket): boolean {
    if (this.#settled.has(ticket) || this.#queue.includes(ticket)) return false;
    this.#queue.unshift(ticket);
    return true;
  }

  readonly #lease = (who: number): boolean => {
    const idle = this.#actors.filter(({ ticket }) => ticket === undefined);
    const ticket = this.#queue[0];
    const actor = idle[who % Math.max(1, idle.length)];
    if (ticket === undefined || actor === undefined) return false;
    this.#queue.shift();
    const version = this.#isPinned ? ticket.issuedAtVersion : this.admission.publishedVersion;
    Object.assign(actor, { ticket, sampledBy: [version] });
    return true;
  };

  /** An actor adopts the newest version between two tokens. */
  readonly #adopt = (who: number): boolean => {
    const actor = this.#busy(who);
    const newest = this.admission.publishedVersion;
    if (actor === undefined || this.#isPinned || actor.sampledBy.at(-1) === newest) return false;
    actor.sampledBy = [...actor.sampledBy, newest];
    return true;
  };

  readonly #finish = (who: number): boolean => this.#finishOne(who, (fate) => fate !== 'slow');
  readonly #finishSlow = (): boolean => this.#finishOne(0, (fate) => fate === 'slow');

  #finishOne(who: number, isReady: (fate: Fate) => boolean): boolean {
    const actor = this.#busy(who, isReady);
    if (actor === undefined) return false;
    const { ticket, sampledBy } = actor;
    this.#acknowledge(ticket);
    this.#scored.push({ ...ticket, sampledBy });
    Object.assign(actor, { ticket: undefined, sampledBy: [] });
    return true;
  }

  /** Removes a ticket from the stream, even if it was redelivered meanwhile. */
  #acknowledge(ticket: IssuedTicket): void {
    this.#settled.add(ticket);
    const at = this.#queue.indexOf(ticket);
    if (at !== -1) this.#queue.splice(at, 1);
  }

  /** Delivers any scored group: the reward service keeps no order. */
  readonly #deliver = (which: number): boolean =>
    this.#deliverOne(which, (fate) => fate !== 'delayed');
  readonly #deliverDelayed = (): boolean => this.#deliverOne(0, (fate) => fate === 'delayed');

  #deliverOne(which: number, isReady: (fate: Fate) => boolean): boolean {
    const ready = this.#scored.filter(({ order }) => isReady(this.#fateOf(order)));
    const group = ready[which % Math.max(1, ready.length)];
    if (group === undefined) return false;
    this.#scored.splice(this.#scored.indexOf(group), 1);
    const { order, sampledBy, attempt } = group;
    const fate = this.#fateOf(order);
    if (this.admission.table.entry(order)?.state !== 'issued') return true; // another copy arrived first
    if (fate === 'uniform') this.admission.table.skip(order);
    else if (fate === 'dead') this.admission.table.markDead(order);
    else this.admission.arrive(order, group, sampledBy, attempt);
    return true;
  }

  readonly #reportAbandoned = (): boolean => {
    const ticket = this.#deadLetters.shift();
    if (ticket === undefined) return false;
    const entry = this.admission.table.entry(ticket.order);
    if (entry?.state !== 'issued' || entry.attempt > ticket.attempt) return true; // as above
    this.admission.table.retryOrEnd(ticket.order, ticket.attempt);
    return true;
  };

  readonly #cut = (): boolean => {
    const refused = this.admission.refuse().length;
    this.stale += refused;
    const { version } = this.admission;
    const minibatch = this.admission.unconfirmedSteps < 2 ? this.admission.cut() : undefined;
    if (minibatch === undefined) return refused > 0;
    assert.equal(minibatch.version, version);
    minibatch.groups.forEach(({ sampledBy }, i) => {
      const staleness = version - Math.min(...sampledBy);
      assert.equal(minibatch.staleness[i], staleness);
      const decisive = this.#isForTokens ? version - Math.max(...sampledBy) : staleness;
      assert(decisive >= 0 && decisive <= this.#limits.maxStepsOffPolicy, `${decisive} steps`);
      if (staleness > this.#limits.maxStepsOffPolicy) this.partlyStale += 1;
    });
    this.#batch.push(...minibatch.orders);
    this.#computing.push(minibatch.orders);
    this.#ages.push(...minibatch.staleness);
    if (minibatch.isLastOfStep) {
      this.batches.push(this.#batch);
      this.#batch = [];
    }
    return true;
  };

  readonly #compute = (): boolean => {
    const orders = this.#computing.shift();
    if (orders === undefined) return false;
    this.admission.limiter.recordComputed(orders);
    return true;
  };

  /** The backend's answers to a step are confirmed after some waiting, which may be none. */
  readonly #confirm = (waited: number): boolean => {
    if (this.admission.unconfirmedSteps === 0) return false;
    const minibatches = this.#limits.numSubsteps * this.#limits.numMinibatches;
    const ofNext = this.batches.length - this.admission.step - 1;
    const sent = this.#computing.length - this.#batch.length / this.admission.minibatchSize;
    if (sent > ofNext * minibatches) return false; // some minibatch of the step is not computed
    this.admission.confirmStep();
    this.admission.limiter.adaptLimit({ seconds: 4, idleSeconds: waited % 5 });
    const ages = this.#ages.splice(0, this.batches[this.admission.step - 1]!.length);
    const mean = ages.reduce((sum, age) => sum + age, 0) / ages.length;
    const metrics = { ess_ratio: waited % 7 === 6 ? 0.5 : 0.97, 'staleness/mean': mean };
    this.admission.limiter.adaptBound(metrics);
    const { step } = this.admission;
    const { bound } = this.admission.limiter;
    assert(bound >= Math.min(1, this.#limits.maxStepsOffPolicy));
    assert(bound <= this.#limits.maxStepsOffPolicy);
    this.recorded.push({ step, metrics, bound });
    return true;
  };

  /** Versions reach the actors in order, after their step, possibly before its confirmation. */
  readonly #publish = (): boolean => {
    if (this.#nextToPublish > this.admission.version) return false;
    this.admission.recordPublished(this.#nextToPublish++);
    this.#cancelUseless();
    return true;
  };

  /** Actors give up groups that a new version makes useless. A group of a consumed ticket leaves no dead letter. */
  #cancelUseless(): void {
    const { publishedVersion, table } = this.admission;
    const useful = smallestUsefulVersion(publishedVersion, this.#limits.maxStepsOffPolicy, []);
    for (const actor of this.#actors) {
      const { ticket, sampledBy } = actor;
      if (ticket === undefined) continue;
      const isConsumed = ticket.order < table.consumedBelow;
      const decisive = this.#isForTokens ? sampledBy.at(-1)! : sampledBy[0]!;
      if (!isConsumed && decisive >= useful) continue;
      this.#acknowledge(ticket);
      Object.assign(actor, { ticket: undefined, sampledBy: [] });
      if (isConsumed) continue;
      this.abandoned += 1;
      this.#deadLetters.push(ticket);
    }
  }

  #busy(who: number, isReady: (fate: Fate) => boolean = () => true) {
    const busy = this.#actors.flatMap((actor) =>
      actor.ticket !== undefined && isReady(this.#fateOf(actor.ticket.order))
        ? [actor as Actor & { ticket: IssuedTicket }]
        : [],
    );
    return busy[who % Math.max(1, busy.length)];
  }

  /** Whether the bound holds for tokens instead of groups. */
  get #isForTokens(): boolean {
    return this.#limits.windowPolicy === 'tokens';
  }

  /** Whether each ticket names the version that must sample it. */
  get #isPinned(): boolean {
    return (this.#limits.sampleLag ?? 0) > 0;
  }

  get #isFullyBusy(): boolean {
    return this.#actors.every(({ ticket }) => ticket !== undefined);
  }

  /** Whether the run can finish without this move. */
  #isOptional(move: (argument: number) => boolean): boolean {
    return move === this.#join || move === this.#leave || move === this.#loseLease;
  }

  #assertBounds(): void {
    const { maxStepsOffPolicy, groupsPerBatch } = this.#limits;
    const { issued, outstanding, ...ends } = this.admission.table.counts;
    const ended = Object.values(ends).reduce((sum, count) => sum + count, 0);
    assert.equal(issued, ended + outstanding);
    const bound = ticketBound(maxStepsOffPolicy, groupsPerBatch);
    assert(outstanding <= bound);
    const { limit } = this.admission.limiter;
    assert(limit >= groupsPerBatch && limit <= bound);
    const wanted = this.#queue.filter(({ order }) => !this.admission.table.isConsumed(order));
    assert(wanted.length <= outstanding);
  }
}
