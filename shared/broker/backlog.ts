import { askFor, type Link } from './link.js';
import type { Source } from './names.js';
import { countsDeliveries } from './run-layout.js';
import { streamState } from './stream-state.js';

/** What waits in the queues of a run. */
export interface Backlog {
  readonly streams: Readonly<Record<QueueStream, StreamBacklog>>;
  readonly consumers: Readonly<Record<Source, ConsumerBacklog>>;
}

export interface StreamBacklog {
  readonly messages: number; // leased and unacknowledged ones included
  readonly oldestAgeSeconds: number; // 0 if there is none
  readonly published: number; // messages that it ever took
}

export interface ConsumerBacklog {
  readonly pending: number; // not delivered to anyone yet
  readonly ackPending: number; // delivered and not settled
}

const queueStreams = ['tickets', 'rollouts', 'scored', 'dead'] as const;
type QueueStream = (typeof queueStreams)[number];

/** Looks at every queue of the run; what does not exist yet is empty. */
export async function readBacklog(link: Link): Promise<Backlog> {
  const [streams, consumers] = await Promise.all([
    byName(queueStreams, (stream) => readStream(link, link.names.streams[stream])),
    byName(Object.keys(countsDeliveries) as Source[], (source) => readConsumer(link, source)),
  ]);
  return { streams, consumers };
}

const nothing = { messages: 0, first_ts: '', last_seq: 0 };

async function readStream(link: Link, stream: string): Promise<StreamBacklog> {
  const { messages, first_ts, last_seq: published } = (await streamState(link, stream)) ?? nothing;
  if (messages === 0) return { messages: 0, oldestAgeSeconds: 0, published };
  // By the clock of the server, which need not be ours.
  const oldestAgeSeconds = Math.max(0, (Date.now() - Date.parse(first_ts)) / 1_000);
  return { messages, oldestAgeSeconds, published };
}

async function readConsumer(link: Link, source: Source): Promise<ConsumerBacklog> {
  const { stream, durable } = link.names.consumer(source);
  const info = await askFor(link, `look at consumer ${durable}`, () =>
    link.jsm.consumers.info(stream, durable),
  );
  return { pending: info?.num_pending ?? 0, ackPending: info?.num_ack_pending ?? 0 };
}

async function byName<Name extends string, T>(
  names: readonly Name[],
  read: (name: Name) => Promise<T>,
): Promise<Record<Name, T>> {
  const entries = await Promise.all(names.map(async (name) => [name, await read(name)] as const));
  return Object.fromEntries(entries) as Record<Name, T>;
}
