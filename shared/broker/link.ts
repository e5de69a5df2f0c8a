import type {
  JetStreamClient,
  JetStreamManager,
  NatsConnection,
  StreamInfo,
  StreamState,
} from 'nats';
import type { Logger } from '../service/telemetry/logger.js';
import { classify } from './failures.js';
import type { RunNames } from './names.js';
import { type Outages, retry } from './retry.js';

/** The open connection with the dependencies that every file of this folder shares. */
export interface Link {
  readonly connection: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly names: RunNames;
  readonly log: Logger;
  readonly outages: Outages;
  /** Ends every wait that has no other signal. */
  readonly signal: AbortSignal;
}

/** Whether the connection is up now; after an outage it reconnects by itself. */
export function isConnected({
  outages,
  connection,
}: Pick<Link, 'outages' | 'connection'>): boolean {
  return !outages.isDown && !connection.isClosed();
}

/** Sends a request to the server, retrying while it is unreachable. */
export function ask<T>(link: Link, what: string, question: () => Promise<T>): Promise<T> {
  const { log, signal, outages } = link;
  return retry({ what, log, signal, outages }, question);
}

/** Like `ask`, but returns `undefined` if what is asked for does not exist. */
export async function askFor<T>(
  link: Link,
  what: string,
  question: () => Promise<T>,
): Promise<T | undefined> {
  try {
    return await ask(link, what, question);
  } catch (caught) {
    if (classify(caught) === 'absent') return undefined;
    throw caught;
  }
}

/**
 * Maximum body of a message, in bytes. Headers count towards the server's `max_payload`, so 4 KiB are
 * reserved for them.
 */
export function largestBody(link: Link): number {
  return (link.connection.info?.max_payload ?? 1_048_576) - 4_096;
}

/**
 * Returns the state of a stream; undefined if it does not exist.
 *
 * @param subjects filter of the subjects whose messages are counted too. Not for a stream that is still being
 *   created: nats-server 2.9.10 panics.
 */
export async function streamState(
  link: Link,
  stream: string,
  subjects?: string,
): Promise<StreamState | undefined> {
  return (await streamInfo(link, stream, subjects))?.state;
}

/** The same with the server's own time. */
export function streamInfo(
  link: Link,
  stream: string,
  subjects?: string,
): Promise<StreamInfo | undefined> {
  const options = subjects === undefined ? {} : { subjects_filter: subjects };
  return askFor(link, `read the state of stream ${stream}`, () =>
    link.jsm.streams.info(stream, options),
  );
}
