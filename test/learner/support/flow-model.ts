import { HoldTimes } from '../../../learner/groups/hold-times.js';
import { TicketWatch } from '../../../learner/groups/ticket-watch.js';
import { Passage } from '../../../shared/broker/passage.js';
import type { QueueLook } from '../../../shared/broker/queue-look.js';
import type { Attempt } from '../../../shared/wire/ticket-ids.js';
import type { Random } from '../../../shared/base/random.js';

/** A queue as JetStream keeps it: what is acknowledged leaves, and numbers are given once. */
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

  /** A power failure takes the newest messages. The server knows again what it still has. */
  restart(without: number): string[] {
    const gone = [...this.messages].slice(this.messages.size - without);
    for (const [seq] of gone) this.messages.delete(seq);
    this.#last = Math.min(this.#last, ...gone.map(([seq]) => seq - 1));
    this.#deliveredTo = Math.min(this.#deliveredTo, this.#last);
    this.#published = new Set(this.messages.values());
    return gone.map(([, id]) => id);
  }

  /** Somebody is given the message; those before it were given to somebody before. */
  deliver(seq: number): void {
    this.#deliveredTo = Math.max(this.#deliveredTo, seq);
  }

  get look(): QueueLook {
    const live = new Set(this.messages.keys());
    return { live, last: this.#last, deliveredTo: this.#deliveredTo };
  }
}

/** Taken and passed on, and not acknowledged yet. */
interface Hand {
  readonly from: Queue;
  readonly seq: number;
}

/**
 * Tickets on their way through actors and reward services to a learner that looks for lost ones.
 * Anything may happen between any two questions that it asks the server. Some that take a message keep
 * it for good: actors lose it to the learner when its time is up, reward services do not.
 */
export class FlowModel {
  /** Found by the learner. */
  readonly found: string[] = [];
  /** Taken from who held them. */
  readonly overdue: string[] = [];
  /** That nobody will ever hear of. */
  readonly lost = new Set<string>();
  readonly #random: Random;
  readonly #queues = { tickets: new Queue(), rollouts: new Queue(), scored: new Queue() };
  readonly #dead: string[] = []; // not read yet
  readonly #hands: Hand[] = [];
  readonly #hoarded = new Set<string>(); // nobody else is given them
  readonly #received = new Set<number>(); // sequence numbers of scored groups
  readonly #awaited = new Set<string>();
  readonly #questions: (() => void)[] = [];
  readonly #watch: TicketWatch;
  #seconds = 0;
  #look: Promise<void> | undefined;
  #issued = 0;

  constructor(random: Random) {
    this.#random = random;
    const answer = <T>(read: () => T) =>
      new Promise<T>((resolve) => {
        this.#questions.push(() => {
          resolve(read());
        });
      });
    const { tickets, rollouts, scored } = this.#queues;
    const looks = {
      rollouts: () => answer(() => rollouts.look),
      answered: (seq: number) => answer(() => attemptAt(rollouts, seq)),
      scored: () => answer(() => scored.messages.size),
    };
    this.#watch = new TicketWatch({
      awaited: () => this.awaited.map(attemptOf),
      look: () =>
        answer(() => {
          const { deliveredTo } = tickets.look;
          const queued = [...tickets.messages].map(([seq, id]) => {
            return { seq, ticket: attemptOf(id), isTaken: seq <= deliveredTo };
          });
          return { tickets: queued, isWhole: true };
        }),
      pass: () => new Passage(looks, () => this.#received.size),
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

  /** Groups that a reward service keeps for good. */
  get inHands(): string[] {
    return [...this.#queues.rollouts.messages.values()].filter((id) => this.#hoarded.has(id));
  }

  /** One thing happens, or nothing if it cannot now. */
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

  /** Nothing goes wrong any more, and everybody has the time for all that there is to do. */
  async settle(): Promise<void> {
    const { tickets, rollouts, scored } = this.#queues;
    const isFree = (id: string) => !this.#hoarded.has(id);
    const hasFree = ({ messages }: Queue) => [...messages.values()].some(isFree);
    while (hasFree(tickets) || hasFree(rollouts) || this.#hands.length > 0) {
      this.#passOn(tickets, rollouts);
      this.#passOn(rollouts, scored);
      this.#acknowledge();
    }
    while (this.#received.size < scored.messages.size) this.#receive();
    // Until the time of what is held is up; to end the passage under way, to tell what it found, and once more.
    for (let looks = 0; looks < 60; looks += 1) {
      do await this.#ask();
      while (this.#look !== undefined);
    }
  }

  #issue(): void {
    const id = `train-${this.#issued++}`;
    this.#queues.tickets.publish(id);
    this.#awaited.add(id);
  }

  /** Somebody has done what a message asks for; he may be the second one to do so. */
  #passOn(from: Queue, to: Queue): void {
    const [seq, id] = this.#any(from) ?? [];
    if (seq === undefined) return;
    from.deliver(seq);
    to.publish(id!);
    this.#hands.push({ from, seq });
  }

  /** An actor, or a reward service, takes a message and never settles it. */
  #hoard(): void {
    const from = this.#random.int(2) === 0 ? this.#queues.tickets : this.#queues.rollouts;
    const [seq, id] = this.#any(from) ?? [];
    if (seq === undefined || this.#hands.some((hand) => hand.from === from && hand.seq === seq))
      return;
    from.deliver(seq);
    this.#hoarded.add(id!);
  }

  #acknowledge(): void {
    const [hand] = this.#hands.splice(this.#random.int(this.#hands.length || 1), 1);
    hand?.from.messages.delete(hand.seq);
  }

  #receive(): void {
    const unheard = [...this.#queues.scored.messages].filter(([seq]) => !this.#received.has(seq));
    const next = unheard[this.#random.int(unheard.length || 1)];
    if (next === undefined) return;
    const [seq, id] = next;
    this.#received.add(seq);
    this.#awaited.delete(id);
  }

  async #ask(): Promise<void> {
    if (this.#look === undefined) {
      for (const id of this.#dead.splice(0)) this.#awaited.delete(id);
      this.#look = this.#watch.look().finally(() => {
        this.#look = undefined;
      });
    } else this.#questions.shift()?.();
    await new Promise((resolve) => setImmediate(resolve));
  }

  #giveUp(): void {
    const { tickets, rollouts } = this.#queues;
    const from = this.#random.int(2) === 0 ? tickets : rollouts;
    const [seq, id] = this.#any(from) ?? [];
    if (seq === undefined) return;
    from.deliver(seq);
    this.#dead.push(id!);
    this.#hands.push({ from, seq });
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
    // What was held under a number that will be given anew is another message.
    this.#hands.length = 0;
    if (unlucky === this.#queues.scored) this.#received.clear();
    this.#markLost(gone);
  }

  /** Unless something of them is still on its way, or was heard of. */
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
