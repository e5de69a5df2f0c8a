import type { StreamState } from 'nats';
import type { Attempt } from '../wire/ticket-ids.js';
import { ticketOf } from './dead-letter-watch.js';
import { askFor, type Link } from './link.js';
import { MessageHeaders } from './message-headers.js';
import type { Source } from './names.js';

/** The content of a queue at some moment. */
export interface QueueState {
  readonly live: ReadonlySet<number>; // sequence numbers of its messages
  readonly last: number; // the highest ever assigned
  /** The consumer has delivered every message up to this one; some may have been returned. */
  readonly deliveredTo: number;
}

/** Reads the state of a queue; undefined while its stream or consumer does not exist. */
export async function pollQueue(link: Link, source: Source): Promise<QueueState | undefined> {
  const { stream, durable } = link.names.consumer(source);
  const info = await askFor(link, `read the state of stream ${stream}`, () =>
    link.jsm.streams.info(stream, { deleted_details: true }),
  );
  const consumer = await askFor(link, `read the state of consumer ${durable} of ${stream}`, () =>
    link.jsm.consumers.info(stream, durable),
  );
  if (info === undefined || consumer === undefined) return undefined;
  const { first_seq: first, last_seq: last, messages } = info.state;
  const { deleted = [] } = info.state as Partial<StreamState>; // absent if there are none
  const live = new Set<number>();
  if (messages > 0) for (let seq = first; seq <= last; seq += 1) live.add(seq);
  for (const seq of deleted) live.delete(seq);
  return { live, last, deliveredTo: consumer.delivered.stream_seq };
}

/** Reads the ticket that a message is or answers; undefined if the message is gone or names none. */
export async function readTicket(
  link: Link,
  stream: string,
  seq: number,
): Promise<Attempt | undefined> {
  const message = await askFor(link, `read message ${seq} of ${stream}`, () =>
    link.jsm.streams.getMessage(stream, { seq }),
  );
  if (message === undefined) return undefined;
  const msgId = new MessageHeaders(message).get('Nats-Msg-Id');
  return ticketOf({ data: message.data, msgId });
}
