import { headers, type StoredMsg, type StreamState } from 'nats';
import { isNotAllowed, classify } from './failures.js';
import { ask, askFor, type Link, streamState } from './link.js';
import { isPublishedTo, type Source } from './names.js';
import { stored } from './tail.js';

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

/**
 * Moves a stream past sequence numbers whose messages the server would hide.
 *
 * When the end of a stream's file is missing at the start of nats-server 2.9.10, it gives the numbers of the lost
 * messages again. But it still goes by an index from before: a new message is acknowledged, and shown to no reader
 * if its number is that of a deleted message, or below that of the first message that there was. Such a stream is
 * emptied up to the last number that was lost, so that the next message gets a new one.
 *
 * @param isKept whether what can still be read is stored again. Otherwise it is lost, as what the file has lost:
 *   the learner issues other tickets and publishes its policy again, and actors renew their leases.
 */
export async function skipHiddenNumbers(
  link: Link,
  stream: string,
  isKept: boolean,
): Promise<void> {
  const { jsm, log } = link;
  const info = await askFor(link, `look into ${stream}`, () =>
    jsm.streams.info(stream, { deleted_details: true }),
  );
  if (info === undefined) return;
  const { last_seq: last, messages } = info.state;
  const upTo = lastKnown(info.state);
  if (upTo <= last) return;

  const readable: StoredMsg[] = [];
  if (isKept) {
    const [everything] = info.config.subjects;
    if (everything === undefined) return;
    for await (const message of stored(link, stream, everything, link.signal)) {
      readable.push(message);
    }
    link.signal.throwIfAborted(); // what was read so far is not all
  }
  const kept = readable.length;
  log.warn(
    { stream, last, upTo, messages, kept },
    'the end of a stream is lost, and the server would hide what comes next: it starts after that',
  );
  try {
    await ask(link, `empty ${stream}`, () => jsm.streams.purge(stream, { seq: upTo + 1 }));
  } catch (caught) {
    if (!isNotAllowed(caught)) throw caught;
    log.warn({ stream }, remedyOfMissingRight);
    return;
  }
  await storeAgain(link, stream, readable);
}

/** The last sequence number that the server's index tells of, whether its message is there or not. */
function lastKnown(state: StreamState): number {
  const { deleted = [], lost } = state as Partial<StreamState>; // left out where there is none
  return [...deleted, ...(lost?.msgs ?? [])].reduce(
    (last, seq) => Math.max(last, seq),
    state.first_seq - 1,
  );
}

/** What helps where the server's configuration was made by an older release. */
export const remedyOfMissingRight =
  'the NATS server does not let the learner empty a stream: run `offbeat nats-config` again and reload it';

/** In their order, each only if nobody has written to its subject meanwhile: that is newer. */
async function storeAgain(
  link: Link,
  stream: string,
  messages: readonly StoredMsg[],
): Promise<void> {
  const newest = new Map<string, number>(); // sequence number, by subject
  for (const { subject, data } of messages) {
    const expected = headers();
    expected.set('Nats-Expected-Last-Subject-Sequence', String(newest.get(subject) ?? 0));
    try {
      const { seq } = await ask(link, `store ${subject} in ${stream} again`, () =>
        link.js.publish(subject, data, { headers: expected }),
      );
      newest.set(subject, seq);
    } catch (caught) {
      if (classify(caught) !== 'conflict') throw caught;
    }
  }
}
