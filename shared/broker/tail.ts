import type { StoredMsg } from 'nats';
import { MessageHeaders } from './message-headers.js';
import { askFor, type Link, streamState } from './link.js';

/**
 * Yields every message of a stream from the first, then each new one as it arrives, in order, until the
 * signal aborts. Keeps no state on the server, so a server restart does not affect it.
 */
export async function* tail(
  link: Link,
  stream: string,
  subject: string,
  signal: AbortSignal,
): AsyncGenerator<StoredMsg, void, undefined> {
  let next = 1;
  for await (const _ of ticks(link, subject, 500, signal)) {
    for await (const message of stored(link, stream, subject, signal, next)) {
      next = message.seq + 1;
      yield message;
    }
  }
}

/** Yields the messages that a stream currently holds, from sequence number `first` on, in order. */
export async function* stored(
  link: Link,
  stream: string,
  subject: string,
  signal: AbortSignal,
  first = 1,
): AsyncGenerator<StoredMsg, void, undefined> {
  const last = await untilAborted(signal, () => lastSequence(link, stream));
  if (last !== undefined && last >= first) yield* held(link, stream, subject, signal, first);
}

/** Like `stored`, for a stream known to be non-empty whose info the caller may not request. */
export async function* held(
  link: Link,
  stream: string,
  subject: string,
  signal: AbortSignal,
  first = 1,
): AsyncGenerator<StoredMsg, void, undefined> {
  for (let next = first; ;) {
    const query = { seq: next, next_by_subj: subject };
    const message = await untilAborted(signal, () =>
      askFor(link, `read ${stream}`, () => link.jsm.streams.getMessage(stream, query)),
    );
    if (message === undefined || signal.aborted) return;
    next = message.seq + 1;
    yield message;
  }
}

/**
 * Returns the sequence number of a stream's newest message; 0 if none was ever stored. Must come before any
 * other request to a stream that may not exist yet: nats-server 2.9.10 panics when asked for a message, or
 * for the subjects, of a stream that is being created.
 */
export async function lastSequence(link: Link, stream: string): Promise<number> {
  return (await streamState(link, stream))?.last_seq ?? 0;
}

/**
 * Ticks at once, then whenever a message is published on `subject`, and at least every `everyMs`, until the
 * signal aborts. A published message is only a hint to poll: it may arrive before the server has stored it,
 * or be lost with a connection.
 *
 * Yields the body of the newest message since the tick before, undefined if there was none. Bodies of server
 * answers, which have headers or a reply subject, are ignored: a client without the right to publish here can have one
 * sent here by naming this subject for the reply.
 */
export async function* ticks(
  link: Link,
  subject: string,
  everyMs: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array | undefined, void, undefined> {
  let isDue = true;
  let newest: Uint8Array | undefined;
  let wake: () => void = () => undefined;
  const tick = () => {
    isDue = true;
    wake();
  };
  const subscription = link.connection.subscribe(subject, {
    callback: (_, message) => {
      const isAnswer = !new MessageHeaders(message).isNone || Boolean(message.reply);
      newest = isAnswer ? undefined : message.data;
      tick();
    },
  });
  signal.addEventListener('abort', tick);
  try {
    while (!signal.aborted) {
      isDue = false;
      const body = newest;
      newest = undefined;
      yield body;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(tick, everyMs);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
        if (isDue || signal.aborted) wake();
      });
    }
  } finally {
    signal.removeEventListener('abort', tick);
    subscription.unsubscribe();
  }
}

/** Returns the result of `read`, or `undefined` if it failed after the signal aborted. */
export async function untilAborted<T>(
  signal: AbortSignal,
  read: () => Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    return await read();
  } catch (caught) {
    if (signal.aborted) return undefined;
    throw caught;
  }
}
