import { LostTickets } from '../../../learner/groups/lost-tickets.js';
import { Passage, type QueueLooks, type QueueSpan } from '../../../shared/broker/passage.js';
import type { Random } from '../../../shared/random.js';

/** A queue as JetStream keeps it: what is acknowledged leaves, and numbers are given once. */
class Queue {
  readonly messages = new Map<number, string>(); // ticket ids by sequence number
  #published = new Set<string>();
  #last = 0;

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
    this.#published = new Set(this.messages.values());
    return gone.map(([, id]) => id);
  }

  get span(): QueueSpan {
    const [first = this.#last + 1] = this.messages.keys();
    return { messages: this.messages.size, first, last: this.#last };
  }
}

/** Taken and passed on, and not acknowledged yet. */
interface Hand {
  readonly from: Queue;
  readonly seq: number;
}

/**
 * Tickets on their way through actors and reward services to a learner that looks for lost ones.
 * Anything may happen between any two questions that it asks the server.
 */
export class FlowModel {
  /** Found by the learner. */
  readonly found: string[] = [];
  /** That nobody will ever hear of. */
  readonly lost = new Set<string>();
  readonly #random: Random;
  readonly #queues = { tickets: new Queue(), rollouts: new Queue(), scored: new Queue() };
  readonly #dead: string[] = []; // not read yet
  readonly #hands: Hand[] = [];
  readonly #received = new Set<number>(); // sequence numbers of scored groups
  readonly #awaited = new Set<string>();
  readonly #questions: (() => void)[] = [];
  readonly #watch: LostTickets;
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
    const looks: QueueLooks = {
      span: (queue) => answer(() => this.#queues[queue].span),
      scored: () => answer(() => this.#queues.scored.messages.size),
    };
    this.#watch = new LostTickets({
      awaited: () => this.awaited.map((ticketId) => ({ ticketId, attempt: 0 })),
      pass: () => new Passage(looks, () => this.#received.size),
      onLost: ({ ticketId }) => {
        this.found.push(ticketId);
        this.#awaited.delete(ticketId);
      },
    });
  }

  get awaited(): string[] {
    return [...this.#awaited];
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
      case 'power failure':
        this.#failPower();
    }
  }

  /** Nothing goes wrong any more, and everybody has the time for all that there is to do. */
  async settle(): Promise<void> {
    const { tickets, rollouts, scored } = this.#queues;
    while (tickets.messages.size > 0 || rollouts.messages.size > 0 || this.#hands.length > 0) {
      this.#passOn(tickets, rollouts);
      this.#passOn(rollouts, scored);
      this.#acknowledge();
    }
    while (this.#received.size < scored.messages.size) this.#receive();
    // To end the passage that is under way, to tell what it found, and the same once more.
    for (let looks = 0; looks < 5; looks += 1) {
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
    to.publish(id!);
    this.#hands.push({ from, seq });
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
    const all = [...queue.messages];
    return all[this.#random.int(all.length || 1)];
  }
}

const rare = ['give up', 'give up', 'swallow', 'power failure'] as const;
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
