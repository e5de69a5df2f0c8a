import { HoldTimes } from '../../../learner/tickets/hold-times.js';
import { TicketWatch } from '../../../learner/tickets/ticket-watch.js';
import { Passage } from '../../../shared/broker/passage.js';
import type { QueueState } from '../../../shared/broker/queue-state.js';
import type { Attempt } from '../../../shared/wire/ticket-ids.js';
import type { Random } from '../../../shared/base/random.js';

/** A JetStream work queue: acknowledged messages leave it, and sequence numbers are used once. */
class Queue {
  readonly messages = new Map<number, string>(); // ticket ids by sequence number
  #published = new Set<string>();
  #last = 0;
  #deliveredTo = 0;

  publish(id: string): void {
    if (this.#published.has(id)) return;
    this.#published.add(id);
    this.messages.set(++this.#last, id);
  }

  /** A power failure loses the newest messages, and with them their ids for deduplication. @returns their ids. */
  restart(without: number): string[] {
    const gone = [...this.messages].slice(this.messages.size - without);
    for (const [seq] of gone) this.messages.delete(seq);
    this.#last = Math.min(this.#last, ...gone.map(([seq]) => seq - 1));
    this.#deliveredTo = Math.min(this.#deliveredTo, this.#last);
    this.#published = new Set(this.messages.values());
    return gone.map(([, id]) => id);
  }

  /** Delivers the message; messages before it were delivered before. */
  deliver(seq: number): void {
    this.#deliveredTo = Math.max(this.#deliveredTo, seq);
  }

  get state(): QueueState {
    const live = new Set(this.messages.keys());
    return { live, last: this.#last, deliveredTo: this.#deliveredTo };
  }
}

/** A message that was taken and passed on, and is not acknowledged yet. */
interface Unacked {
  readonly from: Queue;
  readonly seq: number;
}

/**
 * Tickets on their way through actors and reward services to a learner that watches for lost ones.
 * Anything may happen between two queries of the learner. Some consumers hoard a message: the learner
 * withdraws it from an actor when its time is up, but not from a reward service.
 */
export class FlowModel {
  /** Tickets that the learner reported as lost. */
  readonly found: string[] = [];
  /** Tickets that the learner withdrew. */
  readonly overdue: string[] = [];
  /** Tickets that will never be answered. */
  readonly lost = new Set<string>();
  readonly #random: Random;
  readonly #queues = { tickets: new Queue(), rollouts: new Queue(), scored: new Queue() };
  readonly #dead: string[] = []; // not read yet
  readonly #unacked: Unacked[] = [];
  readonly #hoarded = new Set<string>(); // never redelivered
  readonly #received = new Set<number>(); // sequence numbers of scored groups
  readonly #awaited = new Set<string>();
  readonly #queries: (() => void)[] = [];
  readonly #watch: TicketWatch;
  #seconds = 0;
  #poll: Promise<void> | undefined;
  #issued = 0;

  constructor(random: Random) {
    this.#random = random;
    const answer = <T>(read: () => T) =>
      new Promise<T>((resolve) => {
        this.#queries.push(() => {
          resolve(read());
        });
      });
    const { tickets, rollouts, scored } = this.#queues;
    const queries = {
      rollouts: () => answer(() => rollouts.state),
      answered: (seq: number) => answer(() => attemptAt(rollouts, seq)),
      scored: () => answer(() => scored.messages.size),
    };
    this.#watch = new TicketWatch({
      awaited: () => this.awaited.map(attemptOf),
      isFinished: () => false,
      poll: () =>
        answer(() => {
          const { deliveredTo } = tickets.state;
          const queued = [...tickets.messages].map(([seq, id]) => {
            return { seq, ticket: attemptOf(id), isTaken: seq <= deliveredTo };
          });
          return { tickets: queued, isWhole: true };
        }),
      pass: () => new Passage(queries, () => this.#received.size),
      withdraw: (seq) =>
        answer(() => {
          const id = tickets.messages.get(seq);
          tickets.messages.delete(seq);
          if (id !== undefined) this.#markLost([id]);
          return true;
        }),
      isAnyoneThere: () => true,
      holdTimes: new HoldTimes({ fixedSeconds: 40, leaseSeconds: 1 }),
      now: () => (this.#seconds += 1),
      onLost: ({ ticketId }) => {
        this.found.push(ticketId);
        this.#awaited.delete(ticketId);
      },
      onOverdue: ({ ticketId }) => {
        this.overdue.push(ticketId);
        this.#awaited.delete(ticketId);
        this.lost.delete(ticketId);
      },
      onHeld: () => undefined,
    });
  }

  get awaited(): string[] {
    return [...this.#awaited];
  }

  /** Groups that a reward service hoards. */
  get heldLong(): string[] {
    return [...this.#queues.rollouts.messages.values()].filter((id) => this.#hoarded.has(id));
  }

  /** Makes a random move, or none if that is impossible now. */
  async move(): Promise<void> {
    const moves = this.#random.int(12) === 0 ? rare : usual;
    const { tickets, rollouts, scored } = this.#queues;
    switch (moves[this.#random.int(moves.length)]!) {
      case 'issue':
        this.#issue();
        break;
      case 'sample':
        this.#passOn(tickets, rollouts);
        break;
      case 'score':
        this.#passOn(rollouts, scored);
        break;
      case 'receive':
        this.#receive();
        break;
      case 'acknowledge':
        this.#acknowledge();
        break;
      case 'checkpoint':
        for (const seq of this.#received) scored.messages.delete(seq);
        this.#received.clear();
        break;
      case 'ask':
        await this.#ask();
        break;
      case 'give up':
        this.#giveUp();
        break;
      case 'swallow':
        this.#swallow();
        break;
      case 'hoard':
        this.#hoard();
        break;
      case 'power failure':
        this.#failPower();
    }
  }

  /** Lets all pending work finish, without further faults. */
  async settle(): Promise<void> {
    const { tickets, rollouts, scored } = this.#queues;
    const isFree = (id: string) => !this.#hoarded.has(id);
    const hasFree = ({ messages }: Queue) => [...messages.values()].some(isFree);
    while (hasFree(tickets) || hasFree(rollouts) || this.#unacked.length > 0) {
      this.#passOn(tickets, rollouts);
      this.#passOn(rollouts, scored);
      this.#acknowledge();
    }
    while (this.#received.size < scored.messages.size) this.#receive();
    // Enough polls for the held tickets to expire, the current passage to end, and its findings to be reported.
    for (let polls = 0; polls < 60; polls += 1) {
      do await this.#ask();
      while (this.#poll !== undefined);
    }
  }

  #issue(): void {
    const id = `train-${this.#issued++}`;
    this.#queues.tickets.publish(id);
    this.#awaited.add(id);
  }

  /** A consumer has processed a message, possibly for the second time. */
  #passOn(from: Queue, to: Queue): void {
    const [seq, id] = this.#any(from) ?? [];
    if (seq === undefined) return;
    from.deliver(seq);
    to.publish(id!);
    this.#unacked.push({ from, seq });
  }

  /** An actor or a reward service takes a message and never settles it. */
  #hoard(): void {
    const from = this.#random.int(2) === 0 ? this.#queues.tickets : this.#queues.rollouts;
    const [seq, id] = this.#any(from) ?? [];
    if (
      seq === undefined ||
      this.#unacked.some((taken) => taken.from === from && taken.seq === seq)
    )
      return;
    from.deliver(seq);
    this.#hoarded.add(id!);
  }

  #acknowledge(): void {
    const [message] = this.#unacked.splice(this.#random.int(this.#unacked.length || 1), 1);
    message?.from.messages.delete(message.seq);
  }

  #receive(): void {
    const unreceived = [...this.#queues.scored.messages].filter(
      ([seq]) => !this.#received.has(seq),
    );
    const next = unreceived[this.#random.int(unreceived.length || 1)];
    if (next === undefined) return;
    const [seq, id] = next;
    this.#received.add(seq);
    this.#awaited.delete(id);
  }

  async #ask(): Promise<void> {
    if (this.#poll === undefined) {
      for (const id of this.#dead.splice(0)) this.#awaited.delete(id);
      this.#poll = this.#watch.poll().finally(() => {
        this.#poll = undefined;
      });
    } else this.#queries.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }

  #giveUp(): void {
    const { tickets, rollouts } = this.#queues;
    const from = this.#random.int(2) === 0 ? tickets : rollouts;
    const [seq, id] = this.#any(from) ?? [];
    if (seq === undefined) return;
    from.deliver(seq);
    this.#dead.push(id!);
    this.#unacked.push({ from, seq });
  }

  /** An actor acknowledges a ticket and sends nothing. */
  #swallow(): void {
    const [seq, id] = this.#any(this.#queues.tickets) ?? [];
    if (seq === undefined) return;
    this.#queues.tickets.messages.delete(seq);
    this.#markLost([id!]);
  }

  #failPower(): void {
    const queues = Object.values(this.#queues);
    const unlucky = queues[this.#random.int(queues.length)]!;
    const gone = queues.flatMap((queue) =>
      queue.restart(queue === unlucky ? this.#random.int(queue.messages.size + 1) : 0),
    );
    // The sequence numbers are used again, for other messages.
    this.#unacked.length = 0;
    if (unlucky === this.#queues.scored) this.#received.clear();
    this.#markLost(gone);
  }

  /** Marks tickets as lost, unless they are still on their way or were answered. */
  #markLost(ids: readonly string[]): void {
    const there = Object.values(this.#queues).flatMap(({ messages }) => [...messages.values()]);
    const alive = new Set([...there, ...this.#dead]);
    for (const id of ids) if (this.#awaited.has(id) && !alive.has(id)) this.lost.add(id);
  }

  #any(queue: Queue): [number, string] | undefined {
    const all = [...queue.messages].filter(([, id]) => !this.#hoarded.has(id));
    return all[this.#random.int(all.length || 1)];
  }
}

const rare = ['give up', 'give up', 'swallow', 'power failure', 'hoard'] as const;

function attemptOf(ticketId: string): Attempt {
  return { ticketId, attempt: 0 };
}

function attemptAt({ messages }: Queue, seq: number): Attempt | undefined {
  const id = messages.get(seq);
  return id === undefined ? undefined : attemptOf(id);
}

const usual = [
  'issue',
  'issue',
  'sample',
  'sample',
  'score',
  'score',
  'receive',
  'receive',
  'acknowledge',
  'acknowledge',
  'acknowledge',
  'checkpoint',
  'ask',
  'ask',
  'ask',
] as const;
