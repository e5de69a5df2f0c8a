import { Gauge } from 'prom-client';
import { decode, WireError } from '../wire/codec.js';
import { ScoredGroup } from '../wire/scored-group.js';
import { askFor, type Link, streamInfo } from './link.js';
import { MessageHeaders } from './message-headers.js';
import type { Source } from './names.js';
import type { ObjectBucket } from './object-bucket.js';
import { bodyHeader } from './publish.js';
import { countsDeliveries } from './run-layout.js';
import { lastSequence } from './tail.js';

/** Messages waiting in the queues of a run. */
export interface Backlog {
  readonly streams: Readonly<Record<QueueStream, StreamBacklog>>;
  readonly consumers: Readonly<Record<Source, ConsumerBacklog>>;
}

interface StreamBacklog {
  readonly messages: number; // including leased and unacknowledged ones
  readonly oldestAgeSeconds: number; // 0 for an empty stream
  readonly published: number; // messages ever stored
}

interface ConsumerBacklog {
  readonly pending: number; // not yet delivered
  readonly ackPending: number; // delivered but not settled
}

const queueStreams = ['tickets', 'rollouts', 'scored', 'dead'] as const;
type QueueStream = (typeof queueStreams)[number];

/** Reads the state of every queue of the run; a queue that does not exist yet counts as empty. */
export async function readBacklog(link: Link): Promise<Backlog> {
  const [streams, consumers] = await Promise.all([
    byName(queueStreams, (stream) => readStream(link, link.names.streams[stream])),
    byName(Object.keys(countsDeliveries) as Source[], (source) => readConsumer(link, source)),
  ]);
  return { streams, consumers };
}

const nothing = { messages: 0, first_ts: '', last_ts: '', last_seq: 0 };

async function readStream(link: Link, stream: string): Promise<StreamBacklog> {
  const info = await streamInfo(link, stream);
  const { messages, first_ts, last_ts, last_seq: published } = info?.state ?? nothing;
  if (messages === 0) return { messages: 0, oldestAgeSeconds: 0, published };
  // Both times are from the server's clock, which may differ from ours. Only nats-server before 2.10 does not say what
  // time it is; then it is at least that of the newest message.
  const now = info?.ts === undefined ? Date.now() : Date.parse(info.ts);
  const oldestAgeSeconds = (Math.max(now, Date.parse(last_ts)) - Date.parse(first_ts)) / 1_000;
  return { messages, oldestAgeSeconds, published };
}

async function readConsumer(link: Link, source: Source): Promise<ConsumerBacklog> {
  const { stream, durable } = link.names.consumer(source);
  const info = await askFor(link, `read the state of consumer ${durable}`, () =>
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

const atLimit = new Gauge({
  name: 'rl_senders_at_limit',
  help: 'Actors that have reached their limit of messages in a stream.',
  labelNames: ['stream'],
});

/** A sender that has used up its share of a stream. */
export interface FullShare {
  readonly stream: 'rollouts' | 'uploads' | 'dead';
  readonly sender: string; // as in the subject
  readonly messages: number;
}

/** Finds senders that have used up their share: the stream refuses them, or, for dead letters, drops their oldest. */
export async function fullShares(link: Link): Promise<FullShare[]> {
  const found: FullShare[] = [];
  for (const stream of ['rollouts', 'uploads', 'dead'] as const) {
    const name = link.names.streams[stream];
    const info = await askFor(link, `read the state of stream ${name}`, () =>
      link.jsm.streams.info(name),
    );
    const share = info?.config.max_msgs_per_subject ?? -1;
    // nats-server 2.9.10 panics when asked for the subjects of a stream that is still being created.
    const isPossible = info !== undefined && share > 0 && info.state.messages >= share;
    const counts = isPossible
      ? await askFor(link, `read the state of stream ${name}`, () =>
          link.jsm.streams.info(name, { subjects_filter: '>' }),
        )
      : undefined;
    const full = Object.entries(counts?.state.subjects ?? {}).filter(([, count]) => count >= share);
    atLimit.set({ stream }, full.length);
    for (const [subject, messages] of full) {
      found.push({ stream, sender: subject.split('.').at(-1)!, messages });
    }
  }
  return found;
}

/** A scored group that waits for the learner, or that the learner holds. */
export interface NewestScored {
  readonly seq: number; // in its stream
  readonly group: ScoredGroup;
}

/**
 * Reads the newest scored group of training without affecting its delivery.
 *
 * @param seen sequence number of the group that the caller already has, which is not read again.
 * @returns undefined if there is no group other than `seen`.
 * @throws {WireError} if it is malformed; {PermanentError} if its body is damaged.
 */
export async function newestScored(
  link: Link,
  bodies: ObjectBucket,
  seen: number,
): Promise<NewestScored | undefined> {
  const stream = link.names.streams.scored;
  const last = await lastSequence(link, stream);
  if (last === 0 || last === seen) return undefined;
  const subject = link.names.subjects.scored('train');
  const message = await askFor(link, `read ${stream}`, () =>
    link.jsm.streams.getMessage(stream, { last_by_subj: subject }),
  );
  if (message === undefined || message.seq === seen) return undefined;
  const headers = new MessageHeaders(message);
  if (headers.isMalformed) throw new WireError(`${subject}: its headers are malformed`);
  const object = headers.get(bodyHeader);
  const data = object === undefined ? message.data : await bodies.get(object);
  if (data === undefined) return undefined; // the group was settled meanwhile
  return { seq: message.seq, group: decode(ScoredGroup, subject, data) };
}
