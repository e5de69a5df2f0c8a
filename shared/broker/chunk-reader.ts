import { ErrorCode, NatsError } from 'nats';
import { isNotAllowed } from './failures.js';
import { askFor, type Link } from './link.js';
import { untilAborted } from './tail.js';

/** Requests for chunks that are in flight at once: enough to keep a connection busy while an answer is on its way. */
const requestsAhead = 8;
/** How long to wait for a direct answer. Only the missing answer shows that a stream does not allow direct requests. */
const directTimeoutMs = 2_000;
/** How long all chunks are then read by way of the leader. */
const indirectMs = 300_000;

/**
 * Reads the chunks of objects in a stream. Several requests are in flight, and the server answers with the bytes themselves where
 * the stream allows that (`allow_direct`); its other answers are JSON with the bytes in base64, which costs several times
 * as much on both sides.
 *
 * A direct answer may come from a replica that lacks the newest messages, so what it does not find is asked for again of the
 * leader. Everything goes through the leader where a learner or a configuration of nats-server from an older release does not
 * allow direct requests.
 */
export class ChunkReader {
  readonly #link: Link;
  readonly #stream: string;
  #directFrom = 0; // by performance.now()

  constructor(link: Link, stream: string) {
    this.#link = link;
    this.#stream = stream;
  }

  /**
   * Yields the data of the first `count` messages of a subject, in order; fewer if there are no more, or once the signal of
   * the link aborts. After an outage it goes on with the next chunk.
   */
  async *read(subject: string, count: number): AsyncGenerator<Uint8Array, void, undefined> {
    const first = count > 0 ? await this.#from(1, subject) : undefined;
    if (first === undefined) return;
    yield first.data;
    let last = first.seq;
    let left = count - 1;
    // The chunks of one object are usually stored without others between them, so that their numbers are known in advance.
    const asked: Promise<Chunk | undefined>[] = [];
    for (let next = last + 1; left > 0;) {
      next = Math.max(next, last + 1);
      while (asked.length < Math.min(requestsAhead, left)) asked.push(this.#ahead(next++, subject));
      const chunk = await asked.shift();
      if (chunk === undefined) return;
      if (chunk.seq <= last) continue; // the answer to a number between two chunks
      last = chunk.seq;
      left -= 1;
      yield chunk.data;
    }
  }

  /** Its failure counts only once the chunk is needed. */
  #ahead(seq: number, subject: string): Promise<Chunk | undefined> {
    const chunk = this.#from(seq, subject);
    chunk.catch(() => undefined);
    return chunk;
  }

  /** The first message of the subject from this number on. */
  async #from(seq: number, subject: string): Promise<Chunk | undefined> {
    const { signal } = this.#link;
    const query = { seq, next_by_subj: subject };
    const chunk = await untilAborted(signal, () =>
      askFor(this.#link, `read ${this.#stream}`, () => this.#ask(query)),
    );
    return signal.aborted ? undefined : chunk;
  }

  async #ask(query: Query): Promise<Chunk> {
    let isRefused = false;
    if (performance.now() >= this.#directFrom) {
      try {
        const chunk = await this.#askDirectly(query);
        if (chunk !== undefined) return chunk;
      } catch (caught) {
        isRefused = isNotAllowed(caught) || isUnanswered(caught);
        if (!isRefused) throw caught;
      }
    }
    const chunk = await this.#link.jsm.streams.getMessage(this.#stream, query);
    if (isRefused) this.#directFrom = performance.now() + indirectMs; // the server is not away
    return chunk;
  }

  /** @returns undefined if the replica that answers has no such message. */
  async #askDirectly(query: Query): Promise<Chunk | undefined> {
    const subject = `$JS.API.DIRECT.GET.${this.#stream}`;
    const { connection } = this.#link;
    const { headers, data } = await connection.request(subject, JSON.stringify(query), {
      timeout: directTimeoutMs,
    });
    const seq = Number(headers?.get('Nats-Sequence'));
    return seq > 0 ? { seq, data } : undefined; // an error has a status instead
  }
}

interface Query {
  readonly seq: number; // the least
  readonly next_by_subj: string;
}

interface Chunk {
  readonly seq: number; // in the stream
  readonly data: Uint8Array;
}

/** Whether nothing has answered, which is all that a stream without direct requests does. */
function isUnanswered(caught: unknown): boolean {
  if (!(caught instanceof NatsError)) return false;
  return ([ErrorCode.NoResponders, ErrorCode.Timeout] as string[]).includes(caught.code);
}
