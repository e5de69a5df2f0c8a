import type { StoredMsg } from 'nats';
import { askFor, type Link, streamState } from './link.js';

/**
 * Every message of a stream from the first, then each new one as it arrives, in order, until the
 * signal aborts. It holds nothing on the server, so a restarted server loses nothing of it.
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

/** The messages that a stream holds by now, from sequence number `first` on, in order. */
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

/** The same of a stream that is known to have something, for who may not ask how much. */
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
 * The sequence number of a stream's newest message; 0 where none was ever stored. To be asked before
 * anything else is asked of a stream that may not be there yet: nats-server 2.9.10 ends with a panic when it is
 * asked for a message, or for the subjects, of one that it is just creating.
 */
export async function lastSequence(link: Link, stream: string): Promise<number> {
  return (await streamState(link, stream))?.last_seq ?? 0;
}

/**
 * Ticks at once, then whenever something is published on `subject`, and at the latest every
 * `everyMs`, until the signal aborts. What is heard is only a hint that it is worth looking: a hint
 * may come before the server has stored what it announces, or be lost with a connection.
 */
export async function* ticks(
  link: Link,
  subject: string,
  everyMs: number,
  signal: AbortSignal,
): AsyncGenerator<void, void, undefined> {
  let isDue = true;
  let wake: () => void = () => undefined;
  const tick = () => {
    isDue = true;
    wake();
  };
  const subscription = link.connection.subscribe(subject, { callback: tick });
  signal.addEventListener('abort', tick);
  try {
    while (!signal.aborted) {
      isDue = false;
      yield;
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

/** What `read` finds, or `undefined` if it failed because of the shutdown: then a reader just ends. */
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
