import type { JetStreamClient, JetStreamManager, NatsConnection, StreamState } from 'nats';
import type { Logger } from '../service/telemetry/logger.js';
import { classify } from './failures.js';
import type { RunNames } from './names.js';
import { type Outages, retry } from './retry.js';

/** The open connection and what everything in this folder needs along with it. */
export interface Link {
  readonly connection: NatsConnection;
  readonly js: JetStreamClient;
  readonly jsm: JetStreamManager;
  readonly names: RunNames;
  readonly log: Logger;
  readonly outages: Outages;
  /** Ends every wait that has no signal of its own. */
  readonly signal: AbortSignal;
}

/** Asks the server, waiting out its absence. */
export function ask<T>(link: Link, what: string, question: () => Promise<T>): Promise<T> {
  const { log, signal, outages } = link;
  return retry({ what, log, signal, outages }, question);
}

/** Asks for something that may not exist: then `undefined`. */
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

/** Of a message, in bytes. Headers count towards the server's `max_payload`, so they get room. */
export function largestBody(link: Link): number {
  return (link.connection.info?.max_payload ?? 1_048_576) - 4_096;
}

/**
 * What the server has in a stream; undefined where there is none.
 *
 * @param subjects of which it should count the messages, too, as a filter. Not of a stream that is only just being
 *   made: nats-server 2.9.10 ends with a panic.
 */
export async function streamState(
  link: Link,
  stream: string,
  subjects?: string,
): Promise<StreamState | undefined> {
  const options = subjects === undefined ? {} : { subjects_filter: subjects };
  const info = await askFor(link, `look at stream ${stream}`, () =>
    link.jsm.streams.info(stream, options),
  );
  return info?.state;
}
