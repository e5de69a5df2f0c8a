import { createRandom, type Random } from '../shared/random.js';
import type { RunConfig } from '../shared/wire/run-config.js';
import type { Ticket } from '../shared/wire/ticket.js';

/** What a ticket says, all but when it was issued. */
export type TicketContent = Omit<Ticket, 'issuedAtVersion'>;

/**
 * The run's sequence of training tickets, a function of the configuration alone: every order has the
 * same problem and seed whoever asks and whenever, so the dataset cursor of a checkpoint is one number.
 * Each epoch goes through all problems once, in an order of its own.
 */
export class TicketSource {
  readonly #config: Pick<RunConfig, 'seed' | 'groupSize' | 'sampling'>;
  readonly #problemIds: readonly string[];
  readonly #epochs = new Map<number, readonly string[]>();

  constructor(
    config: Pick<RunConfig, 'seed' | 'groupSize' | 'sampling'>,
    problemIds: readonly string[],
  ) {
    if (problemIds.length === 0) throw new RangeError('TicketSource: no problem to train on');
    this.#config = config;
    this.#problemIds = problemIds;
  }

  /** The ticket at a position of the sequence; `attempt` 1 is its one reissue, with another seed. */
  at(order: number, attempt: number): TicketContent {
    const { groupSize, sampling } = this.#config;
    return {
      v: 1,
      ticketId: ticketId(order),
      order,
      problemId: this.#problemAt(order),
      split: 'train',
      groupSize,
      samplingParams: {
        ...sampling,
        seed: this.#random(`ticket ${order} ${attempt}`).int(2 ** 31),
      },
      attempt,
    };
  }

  #problemAt(order: number): string {
    const size = this.#problemIds.length;
    const epoch = Math.floor(order / size);
    let problems = this.#epochs.get(epoch);
    if (problems === undefined) {
      problems = this.#random(`epoch ${epoch}`).shuffle(this.#problemIds);
      this.#epochs.set(epoch, problems);
      this.#epochs.delete(epoch - 2); // a reissue may still reach into the one before
    }
    return problems[order % size]!;
  }

  #random(purpose: string): Random {
    return createRandom(`${this.#config.seed} ${purpose}`);
  }
}

export function ticketId(order: number): string {
  return `train-${String(order).padStart(8, '0')}`;
}

/** The position that a training ticket's id names; undefined for any other text. */
export function orderOf(id: string): number | undefined {
  const [, digits] = /^train-(\d{8,15})$/.exec(id) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
