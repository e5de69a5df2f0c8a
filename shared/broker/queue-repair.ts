import { headers, type StoredMsg, type StreamState } from 'nats';
import { isNotAllowed, classify } from './failures.js';
import { ask, askFor, type Link, streamState } from './link.js';
import { isPublishedTo, type Source } from './names.js';
import { stored } from './tail.js';

/**
 * Finds and removes messages that would never be delivered but keep occupying a bounded queue:
 *
 * - **ghosts**, acknowledged messages that are still in their queue: a killed nats-server 2.9.10 restarts in
 *   this state when it had written the acknowledgement to disk but not the deletion.
 * - **strangers**, messages of another queue: a process that fetches messages can have the server deliver
 *   them to any subject that it may publish to, where they are stored again.
 * - **hidden messages**, which the server counts but never delivers: see `skipHiddenNumbers`. They were
 *   published before that ran. Redelivery does not help, so their queue is emptied, and the learner replaces
 *   the lost tickets.
 *
 * They are detected by counting: messages in a queue beyond those that its consumers have yet to deliver or
 * to see acknowledged. An acknowledgement in progress looks the same for a moment, so two consecutive checks
 * must find some.
 */
export class QueueRepair {
  readonly #link: Link;
  readonly #free: (source: Source) => Promise<void>;
  readonly #suspected = new Set<string>();
  readonly #freed = new Set<string>(); // streams redelivered once that have had ghosts at each check since
  #polling: Promise<void> | undefined;

  /** @param free redelivers every unacknowledged message of a queue. */
  constructor(link: Link, free: (source: Source) => Promise<void>) {
    this.#link = link;
    this.#free = free;
  }

  /** Checks every queue; concurrent calls share one check. */
  poll(): Promise<void> {
    this.#polling ??= this.#pollAll().finally(() => {
      this.#polling = undefined;
    });
    return this.#polling;
  }

  async #pollAll(): Promise<void> {
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
        if (await this.#deleteStrangers(stream, sources)) continue; // ghosts are counted again at the next check
        if (this.#freed.delete(stream)) {
          await this.#empty(stream, ghosts);
          continue;
        }
        this.#freed.add(stream);
        // Consumers recognize messages that they have already handled.
        this.#link.log.warn(
          { stream, ghosts },
          'acknowledged messages kept by the server, redelivered',
        );
        for (const source of sources) await this.#free(source);
      }
    }
  }

  async #empty(stream: string, hidden: number): Promise<void> {
    const { jsm, log } = this.#link;
    log.warn({ stream, hidden }, 'messages never delivered by the server, queue emptied');
    try {
      await ask(this.#link, `empty ${stream}`, () => jsm.streams.purge(stream));
    } catch (caught) {
      if (!isNotAllowed(caught)) throw caught;
      log.warn({ stream }, remedyOfMissingRight);
    }
  }

  /** Deletes messages of other queues. @returns whether there were any. */
  async #deleteStrangers(stream: string, sources: readonly Source[]): Promise<boolean> {
    const { jsm, names, log } = this.#link;
    const state = await streamState(this.#link, stream, '>');
    const strangers = Object.entries(state?.subjects ?? {}).filter(
      ([subject]) => !sources.some((source) => isPublishedTo(names, source, subject)),
    );
    for (const [subject, messages] of strangers) {
      log.warn({ stream, subject, messages }, 'messages of another queue deleted');
      await ask(this.#link, `delete ${subject} from ${stream}`, () =>
        jsm.streams.purge(stream, { filter: subject }),
      );
    }
    return strangers.length > 0;
  }
}

/** Interval between checks, in milliseconds; ghosts may block a full queue for two intervals. */
export const repairEveryMs = 2_000;

/** The queues, as the consumers of each. */
const queues: readonly (readonly [Source, ...Source[]])[] = [
  ['tickets.train', 'tickets.eval'],
  ['rollouts'],
  ['scored.train', 'scored.eval'],
];

/** Returns a lower bound on the messages of a queue that will never be delivered. */
async function countGhosts(link: Link, sources: readonly [Source, ...Source[]]): Promise<number> {
  const { stream } = link.names.consumer(sources[0]);
  const before = await streamState(link, stream);
  const waiting = await Promise.all(sources.map((source) => countWaiting(link, source)));
  const after = await streamState(link, stream);
  if (before === undefined || after === undefined) return 0;
  const accounted = waiting.reduce<number>((sum, count) => sum + (count ?? NaN), 0);
  // Messages published meanwhile may be missing from the consumers' counts.
  const meanwhile = after.last_seq - before.last_seq;
  const ghosts = after.messages - meanwhile - accounted;
  return ghosts > 0 ? ghosts : 0; // NaN without a consumer gives 0
}

/** Counts the messages that a consumer has yet to deliver or to see acknowledged. */
async function countWaiting(link: Link, source: Source): Promise<number | undefined> {
  const { stream, durable } = link.names.consumer(source);
  const info = await askFor(link, `read the state of consumer ${durable} of ${stream}`, () =>
    link.jsm.consumers.info(stream, durable),
  );
  return info && info.num_pending + info.num_ack_pending;
}

/**
 * Moves a stream past sequence numbers whose messages the server would hide from readers.
 *
 * If the end of a stream's file is missing when nats-server 2.9.10 starts, the server reuses the numbers of
 * the lost messages but keeps its old index: a new message is acknowledged but shown to no reader if its
 * number is that of a deleted message or below the former first number. Such a stream is purged up to the
 * last lost number, so that the next message gets a new one.
 *
 * @param isKept whether messages that can still be read are stored again. Otherwise they are lost too: the
 *   learner issues new tickets and republishes its policy, and actors renew their leases.
 */
export async function skipHiddenNumbers(
  link: Link,
  stream: string,
  isKept: boolean,
): Promise<void> {
  const { jsm, log } = link;
  const info = await askFor(link, `read the state of stream ${stream}`, () =>
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
    link.signal.throwIfAborted(); // reading was cut short
  }
  const kept = readable.length;
  log.warn(
    { stream, last, upTo, messages, kept },
    'end of a stream lost, reused sequence numbers skipped',
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

/** Returns the last sequence number in the server's index, whether its message exists or not. */
function lastKnown(state: StreamState): number {
  const { deleted = [], lost } = state as Partial<StreamState>; // absent if there are none
  return [...deleted, ...(lost?.msgs ?? [])].reduce(
    (last, seq) => Math.max(last, seq),
    state.first_seq - 1,
  );
}

/** Remedy if an older release wrote the server's configuration. */
const remedyOfMissingRight =
  'the NATS server does not allow the learner to empty a stream: run `offbeat nats-config` again and restart it';

/** Stores messages again in order, each only if its subject has not been written meanwhile. */
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
