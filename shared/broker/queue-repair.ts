import { isNotAllowed } from './failures.js';
import { remedyOfMissingRight } from './hidden-numbers.js';
import { ask, askFor, type Link } from './link.js';
import { isPublishedTo, type Source } from './names.js';
import { streamState } from './stream-state.js';

/**
 * Finds and frees what nobody will ever be given, and what takes up a place in a bounded queue for ever:
 *
 * - **ghosts**, messages that their consumer has as acknowledged and that are in their queue all the same: a
 *   killed nats-server 2.9.10 comes back so, when the one was on its disk and the other not yet.
 * - **strangers**, messages that were published elsewhere: who takes messages may have the server deliver
 *   them to any subject that it may publish to, where they are stored as what they were.
 * - **hidden messages**, which the server counts and never delivers: see `skipHiddenNumbers`. They were
 *   published before that was called. Having them delivered again does not help, so their queue is emptied, and
 *   the learner issues other tickets for those that are lost.
 *
 * They are known by counting: what a queue holds beyond what its consumers still have to deliver or
 * wait to have acknowledged. An acknowledgement that is only just taking its effect looks the same for
 * a moment, so a queue must have some at two looks, one after the other.
 */
export class QueueRepair {
  readonly #link: Link;
  readonly #free: (source: Source) => Promise<void>;
  readonly #suspected = new Set<string>();
  readonly #freed = new Set<string>(); // streams that have had ghosts at each look since
  #looking: Promise<void> | undefined;

  /** @param free has everything that is in a queue and not acknowledged delivered once more. */
  constructor(link: Link, free: (source: Source) => Promise<void>) {
    this.#link = link;
    this.#free = free;
  }

  /** Looks at every queue; one look at a time. */
  look(): Promise<void> {
    this.#looking ??= this.#lookAtAll().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  async #lookAtAll(): Promise<void> {
    for (const sources of queues) {
      const { stream } = this.#link.names.consumer(sources[0]);
      const ghosts = await countGhosts(this.#link, sources);
      if (ghosts === 0) {
        this.#suspected.delete(stream);
        this.#freed.delete(stream);
      } else if (!this.#suspected.has(stream)) {
        this.#suspected.add(stream);
      } else {
        this.#suspected.delete(stream);
        if (await this.#expelStrangers(stream, sources)) continue; // the others are counted anew
        if (this.#freed.delete(stream)) {
          await this.#empty(stream, ghosts);
          continue;
        }
        this.#freed.add(stream);
        // Whoever has seen them knows them again.
        this.#link.log.warn(
          { stream, ghosts },
          'the server kept what was acknowledged: it is delivered again',
        );
        for (const source of sources) await this.#free(source);
      }
    }
  }

  async #empty(stream: string, hidden: number): Promise<void> {
    const { jsm, log } = this.#link;
    log.warn(
      { stream, hidden },
      'the server delivers some messages to nobody: the queue is emptied',
    );
    try {
      await ask(this.#link, `empty ${stream}`, () => jsm.streams.purge(stream));
    } catch (caught) {
      if (!isNotAllowed(caught)) throw caught;
      log.warn({ stream }, remedyOfMissingRight);
    }
  }

  /** @returns whether there were any. */
  async #expelStrangers(stream: string, sources: readonly Source[]): Promise<boolean> {
    const { jsm, names, log } = this.#link;
    const state = await streamState(this.#link, stream, '>');
    const strangers = Object.entries(state?.subjects ?? {}).filter(
      ([subject]) => !sources.some((source) => isPublishedTo(names, source, subject)),
    );
    for (const [subject, messages] of strangers) {
      log.warn({ stream, subject, messages }, 'messages of another queue were sent into this one');
      await ask(this.#link, `expel ${subject} from ${stream}`, () =>
        jsm.streams.purge(stream, { filter: subject }),
      );
    }
    return strangers.length > 0;
  }
}

/** How often somebody should look, in milliseconds: so long, twice, may a full queue stand still. */
export const repairEveryMs = 2_000;

/** The queues, as the consumers of each. */
const queues: readonly (readonly [Source, ...Source[]])[] = [
  ['tickets.train', 'tickets.eval'],
  ['rollouts'],
  ['scored.train', 'scored.eval'],
];

/** At least so many messages of a queue will never be delivered. */
async function countGhosts(link: Link, sources: readonly [Source, ...Source[]]): Promise<number> {
  const { stream } = link.names.consumer(sources[0]);
  const before = await streamState(link, stream);
  const waiting = await Promise.all(sources.map((source) => countWaiting(link, source)));
  const after = await streamState(link, stream);
  if (before === undefined || after === undefined) return 0;
  const inHand = waiting.reduce<number>((sum, count) => sum + (count ?? NaN), 0);
  // What was published meanwhile need not be among those that the consumers told of.
  const meanwhile = after.last_seq - before.last_seq;
  const ghosts = after.messages - meanwhile - inHand;
  return ghosts > 0 ? ghosts : 0; // also without a consumer
}

/** Messages that a consumer has to deliver yet, or to hear of. */
async function countWaiting(link: Link, source: Source): Promise<number | undefined> {
  const { stream, durable } = link.names.consumer(source);
  const info = await askFor(link, `look at consumer ${durable} of ${stream}`, () =>
    link.jsm.consumers.info(stream, durable),
  );
  return info && info.num_pending + info.num_ack_pending;
}
