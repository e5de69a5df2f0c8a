import assert from 'node:assert/strict';
import type { Broker } from '../../shared/broker/broker.js';
import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import { isUniform } from '../../shared/rl/advantages.js';
import { decode } from '../../shared/wire/codec.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { orderOf } from '../../shared/base/ticket-name.js';

interface Law {
  readonly groupsPerBatch: number;
  readonly maxStepsOffPolicy: number;
}

/**
 * Checks the capacity law of a run from outside: it receives every message of every stream, in the order
 * in which the server stores them, and checks after each whether the law can still hold.
 *
 * An outsider knows about steps only from tickets: a ticket issued at version p is sampled by p or a
 * newer one, and the observer can rely on at most p steps being trained by then. So the law
 * outstanding ≤ (max_steps_off_policy + 1) · groups_per_batch reads, in what can be seen:
 *
 *     issued ≤ (p + max_steps_off_policy + 1) · groups_per_batch + skipped + dead
 */
export class LawObserver implements AsyncDisposable {
  readonly #subscription: { unsubscribe(): void };
  readonly #law: Law;
  readonly #issued = new Set<number>(); // orders
  readonly #done = new Set<number>(); // skipped or dead
  readonly #delivered = new Set<number>();
  /** The first violation found. */
  violation: Error | undefined;
  /** The least number of further tickets that the law allowed at any time. */
  leastRoom = Infinity;
  readonly actors = new Set<string>(); // those that delivered

  constructor(broker: Broker, law: Law) {
    this.#law = law;
    const { run } = broker;
    this.#subscription = broker.link.connection.subscribe(`offbeat.${run}.>`, {
      callback: (error, { subject, data }) => {
        if (error !== null) throw error;
        this.#try(() => {
          this.#hear(subject.split('.').slice(2).join('.'), data);
        });
      },
    });
  }

  /** Tickets that were skipped or died. */
  get ended(): number {
    return this.#done.size;
  }

  /** Ends the observation. @throws the first violation. */
  async conclude(): Promise<void> {
    await this[Symbol.asyncDispose]();
    if (this.violation !== undefined) throw this.violation;
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#subscription.unsubscribe();
    return Promise.resolve();
  }

  #try(look: () => void): void {
    try {
      look();
    } catch (error) {
      this.violation ??= error as Error;
    }
  }

  #hear(what: string, data: Uint8Array): void {
    if (what === 'tickets.train') this.#hearTicket(decode(Ticket, what, data));
    else if (what.startsWith('rollouts.')) this.#hearRollouts(decode(RolloutGroup, what, data));
    else if (what === 'scored.train') this.#hearScored(decode(ScoredGroup, what, data));
    else if (what.startsWith('dead.')) this.#hearDeath(data);
  }

  #hearTicket({ order, issuedAtVersion }: Ticket): void {
    this.#issued.add(order);
    const { groupsPerBatch, maxStepsOffPolicy } = this.#law;
    const bound = (issuedAtVersion + maxStepsOffPolicy + 1) * groupsPerBatch + this.#done.size;
    const room = bound - this.#issued.size;
    this.leastRoom = Math.min(this.leastRoom, room);
    assert(room >= 0, `${this.#issued.size} tickets at version ${issuedAtVersion}, not ${bound}`);
    // Not the stream's own count: an actor that died between delivery and acknowledgement leaves its
    // ticket there, to be sampled again.
    const waiting = [...this.#issued].filter(
      (it) => !this.#delivered.has(it) && !this.#done.has(it),
    ).length;
    assert(waiting <= (maxStepsOffPolicy + 1) * groupsPerBatch, `${waiting} tickets wait`);
  }

  #hearRollouts({ ticket, actor, rollouts }: RolloutGroup): void {
    if (ticket.split !== 'train') return;
    this.actors.add(actor);
    this.#delivered.add(ticket.order);
    assert(this.#issued.has(ticket.order), `${ticket.ticketId} was never issued`);
    for (const { versions } of rollouts) {
      for (const [version] of versions) assert(version >= ticket.issuedAtVersion);
    }
  }

  #hearScored({ group, scores }: ScoredGroup): void {
    if (isUniform(scores.map(({ exactReward }) => exactReward))) this.#done.add(group.ticket.order);
  }

  #hearDeath(data: Uint8Array): void {
    const { ticketId } = ticketOf({ data, msgId: undefined })!;
    this.#done.add(orderOf(ticketId)!);
  }
}
