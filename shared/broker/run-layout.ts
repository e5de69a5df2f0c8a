import {
  AckPolicy,
  type ConsumerConfig,
  DeliverPolicy,
  DiscardPolicy,
  nanos,
  ReplayPolicy,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
} from 'nats';
import { everyDeadLetter, type RunNames, type Source } from './names.js';

/** How many tickets may be outstanding at once: the capacity law's bound. */
export interface RunLimits {
  readonly trainTickets: number;
  readonly evalTickets: number;
  /** Servers of a cluster that keep each stream; 1 where there is none. */
  readonly replicas?: number;
  /** The most that a group has as a message, in bytes. */
  readonly largestGroupBytes?: number;
}

/** How many of its largest groups an actor may have waiting where those lie that are too large for a message. */
const uploadedGroups = 4;

/** Actors that can each use up their share of a stream before the stream itself is full. */
const fullShares = 64;

/** Dead letters that are kept of one sender: the newest. */
const lettersPerOrigin = 200;

/** A lease has some hundred bytes. */
const maxLeaseBytes = 16 * 1024;

/**
 * How often a message is tried before it is given up.
 *
 * The server itself is told no limit. A message that used up the server's own `max_deliver` is never
 * delivered again, counts as no lag, and still keeps its place in a bounded work queue: when a
 * process dies on the last try, nobody is left to clear it away. So `consume` counts instead.
 */
export const maxTries = 5;

/**
 * Whether each delivery of a queue's messages is a try. A scored group stays unacknowledged until the
 * checkpoint, so each learner that starts again is handed it again, and nothing is wrong with it: of
 * these only the failures count that one learner sees.
 */
export const countsDeliveries: Readonly<Record<Source, boolean>> = {
  'tickets.train': true,
  'tickets.eval': true,
  rollouts: true,
  'scored.train': false,
  'scored.eval': false,
};

/**
 * After how long an unacknowledged message is delivered again, in milliseconds. Whoever holds one
 * longer says so; one that a breaking connection swallowed comes again after this time.
 */
const defaultAckWaitMs: Readonly<Record<Source, number>> = {
  'tickets.train': 30_000,
  'tickets.eval': 30_000,
  rollouts: 30_000,
  'scored.train': 30_000,
  'scored.eval': 30_000,
};

const hourMs = 3_600_000;

/** How many values the ledger keeps of each of its keys. */
const ledgerHistory = 8;

/** A stream's settings, in full where this system relies on them. Only what nats-server 2.9 knows. */
export type StreamSettings = Partial<StreamConfig> & Pick<StreamConfig, 'name' | 'max_msgs'>;
/** A durable consumer's settings. */
export type ConsumerSettings = Partial<ConsumerConfig> & { durable_name: string };

/**
 * The streams of a run, those behind its buckets included. Every one is bounded by messages rather
 * than bytes: a byte bound on a file stream is reserved on the disk in advance, and a laptop would
 * refuse the sum. A message is at most the server's `max_payload`.
 *
 * Where actors write, each has subjects of its own, and the bound that counts is that of a subject: who has used
 * up his share is refused, and the stream has room for many more. An honest run never comes near it.
 *
 * @param chunkBytes of an uploaded body, in bytes.
 */
export function streamSettings(
  names: RunNames,
  limits: RunLimits,
  chunkBytes = 512 * 1024,
): StreamSettings[] {
  const capacity = limits.trainTickets + limits.evalTickets;
  const { streams, buckets, objects, run } = names;
  const queue = (name: string, kind: string, maxMessages: number): StreamSettings => ({
    ...fileStream(name, [`offbeat.${run}.${kind}.*`], maxMessages),
    retention: RetentionPolicy.Workqueue,
    discard: DiscardPolicy.New, // a full queue refuses, and the publisher waits
    // Covers a ticket that two actors sampled because the first one seemed dead.
    duplicate_window: nanos(hourMs),
  });
  const log = (name: string, kind: string, maxMessages: number): StreamSettings => ({
    ...fileStream(name, [`offbeat.${run}.${kind}.*`], maxMessages),
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.Old, // history must never stop the training that it tells of
  });
  const settings = [
    queue(streams.tickets, 'tickets', capacity),
    // Twice the capacity: a ticket whose lease ran out may be sampled a second time. One actor may be all there is.
    shared(queue(streams.rollouts, 'rollouts', 2 * capacity)),
    {
      ...shared(queue(streams.uploads, 'uploads', uploadChunks(limits, chunkBytes))),
      retention: RetentionPolicy.Limits,
      max_msg_size: chunkBytes + 1_024, // headers count
    },
    // Trained groups stay until the checkpoint that consumed them, so many more than the capacity.
    queue(streams.scored, 'scored', 2 * capacity + 32_768),
    {
      ...log(streams.dead, 'dead', 10_000),
      subjects: [everyDeadLetter(names)],
      max_msgs_per_subject: lettersPerOrigin,
    },
    log(streams.events, 'events', 500_000),
    keyValueStream(buckets.config, 16),
    keyValueStream(buckets.policy, 10_000),
    // The former checkpoints stay for a while, should the end of the file be damaged.
    { ...keyValueStream(buckets.ledger, 64), max_msgs_per_subject: ledgerHistory },
    // An actor that is silent for an hour is forgotten, so that renamed pods do not pile up.
    {
      ...keyValueStream(buckets.actors, 10_000),
      max_age: nanos(hourMs),
      max_msg_size: maxLeaseBytes,
    },
    // Chunks of 128 KiB. An adapter that is published again makes its first entry go by a header.
    { ...objectStream(objects.weights, 262_144), allow_rollup_hdrs: true },
    // Removed as their messages are acknowledged; what a crash leaves behind is swept, at the latest after a month.
    { ...objectStream(objects.bodies, 65_536), max_age: nanos(30 * 24 * hourMs) },
  ];
  return settings.map((stream) => ({ ...stream, num_replicas: limits.replicas ?? 1 }));
}

/**
 * The streams from whose midst messages are deleted, by whether what they hold can be had again or is to be kept.
 * Only the oldest events are ever deleted. Dead letters can do without: the learner finds out by itself which
 * tickets are lost.
 */
export function streamsThatDelete({ streams, buckets, objects }: RunNames): {
  readonly emptied: readonly string[];
  readonly kept: readonly string[];
} {
  const { tickets, rollouts, uploads, scored } = streams;
  const bucketsToFill = [buckets.policy, buckets.actors].map((bucket) => `KV_${bucket}`);
  const objectsToStore = [objects.weights, objects.bodies].map((bucket) => `OBJ_${bucket}`);
  return {
    emptied: [tickets, rollouts, uploads, scored, ...bucketsToFill, ...objectsToStore],
    kept: [buckets.config, buckets.ledger].map((bucket) => `KV_${bucket}`),
  };
}

/** How many chunks one actor may have uploaded. */
function uploadChunks({ largestGroupBytes = 32 * 2 ** 20 }: RunLimits, chunkBytes: number): number {
  return uploadedGroups * Math.ceil(largestGroupBytes / chunkBytes);
}

/** A stream of which each sender, by its subject, has a share: as much as the settings say of the whole. */
function shared(settings: StreamSettings): StreamSettings {
  const share = settings.max_msgs;
  return {
    ...settings,
    max_msgs: Math.min(fullShares * share, Math.max(share, 524_288)),
    max_msgs_per_subject: share,
    discard_new_per_subject: true,
  };
}

/** The durable consumer of `source`. One filter each: nats-server 2.9 knows no more. */
export function consumerSettings(
  names: RunNames,
  source: Source,
  limits: RunLimits,
  ackWaitMs: number = defaultAckWaitMs[source],
): ConsumerSettings {
  const { stream, durable, filter } = names.consumer(source);
  const bound = streamSettings(names, limits).find(({ name }) => name === stream)!.max_msgs;
  return {
    durable_name: durable,
    filter_subject: filter,
    ack_policy: AckPolicy.Explicit,
    deliver_policy: DeliverPolicy.All,
    replay_policy: ReplayPolicy.Instant,
    ack_wait: nanos(ackWaitMs),
    max_deliver: -1, // counted in consume, see maxTries
    // Shared by all replicas. As large as the stream, so it never holds back a replica with room.
    max_ack_pending: bound,
    max_waiting: 4_096, // pull requests of all replicas together
  };
}

/** The stream behind a key-value bucket, laid out as every NATS client expects it. */
function keyValueStream(bucket: string, maxMessages: number): StreamSettings {
  return {
    ...fileStream(`KV_${bucket}`, [`$KV.${bucket}.>`], maxMessages),
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.New,
    max_msgs_per_subject: 1, // the newest value of a key alone
    allow_rollup_hdrs: false, // one key's writer could erase all the others with a header
  };
}

/** The stream behind an object store, laid out as every NATS client expects it. */
function objectStream(bucket: string, maxMessages: number): StreamSettings {
  return {
    ...fileStream(`OBJ_${bucket}`, [`$O.${bucket}.C.>`, `$O.${bucket}.M.>`], maxMessages),
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.New,
    allow_rollup_hdrs: false,
    duplicate_window: nanos(hourMs), // a chunk whose answer an outage swallowed is stored once
  };
}

function fileStream(name: string, subjects: string[], maxMessages: number): StreamSettings {
  // In files, since a restarted server must still have everything that it accepted.
  return { name, subjects, storage: StorageType.File, max_msgs: maxMessages };
}
