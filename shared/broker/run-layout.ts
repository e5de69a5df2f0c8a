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

/** The limits that a run's streams are sized by. Tickets: how many of each split may be outstanding at once. */
export interface RunLimits {
  readonly trainTickets: number;
  readonly evalTickets: number;
  /** Replicas of each stream in a cluster; 1 without a cluster. */
  readonly replicas?: number;
  /** Maximum size of a group as a message, in bytes. */
  readonly largestGroupBytes?: number;
}

/** How many of the largest groups an actor may have in the upload stream. */
const uploadedGroups = 4;

/** How many actors can use up their share before the stream itself is full. */
const fullShares = 64;

/** How many dead letters of one sender are kept: the newest. */
const lettersPerOrigin = 200;

/** A lease takes a few hundred bytes. */
const maxLeaseBytes = 16 * 1024;

/**
 * How often a message is tried before it is dead-lettered.
 *
 * The limit of the server is not used: a message that used up `max_deliver` is never redelivered and does not
 * count as lag, but keeps its place in a bounded work queue, and if the process dies on the last try nothing
 * removes it. So `consume` counts the tries.
 */
export const maxTries = 5;

/**
 * Whether each delivery of a queue's messages counts as a try. A scored group stays unacknowledged until the
 * checkpoint, so every restarted learner receives it again without an error; for these queues only failures
 * within one learner process count.
 */
export const countsDeliveries: Readonly<Record<Source, boolean>> = {
  'tickets.train': true,
  'tickets.eval': true,
  rollouts: true,
  'scored.train': false,
  'scored.eval': false,
};

/**
 * How long until an unacknowledged message is redelivered, in milliseconds. A consumer that holds one longer
 * renews its lease; a message lost with a connection is redelivered after this time.
 */
const defaultAckWaitMs: Readonly<Record<Source, number>> = {
  'tickets.train': 30_000,
  'tickets.eval': 30_000,
  rollouts: 30_000,
  'scored.train': 30_000,
  'scored.eval': 30_000,
};

const hourMs = 3_600_000;

/** Scored groups that may wait for the checkpoint that acknowledges them, besides those of outstanding tickets. A learner makes it early at a quarter of the least. */
export const groupsAwaitingCheckpoint = {
  least: 32_768,
  /** A step waits for a batch of groups with variance, and where those are rare it skips hundreds of others for each. */
  perTicket: 512,
};

/** How many values of each key the ledger keeps. */
const ledgerHistory = 8;

/** A stream's settings: all that Offbeat relies on, and only those that nats-server 2.9 knows. */
export type StreamSettings = Partial<StreamConfig> & Pick<StreamConfig, 'name' | 'max_msgs'>;
/** A durable consumer's settings. */
export type ConsumerSettings = Partial<ConsumerConfig> & { durable_name: string };

/**
 * Returns the streams of a run, including those of its buckets. Each is bounded by messages rather than
 * bytes: the server reserves the byte limit of a file stream on the disk in advance, and the sum would exceed
 * a laptop's disk. A message is at most the server's `max_payload`.
 *
 * Each actor writes to its own subjects, and the effective limit is per subject: an actor that has used up
 * its share is refused while the stream still has room for many others. An honest run never gets near this
 * limit.
 *
 * @param chunkBytes chunk size of an uploaded body, in bytes.
 */
export function streamSettings(
  names: RunNames,
  limits: RunLimits,
  chunkBytes = 512 * 1024,
): StreamSettings[] {
  const capacity = limits.trainTickets + limits.evalTickets;
  const { streams, buckets, objects, run } = names;
  const { least, perTicket } = groupsAwaitingCheckpoint;
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
    discard: DiscardPolicy.Old, // a full history must never block training
  });
  const settings = [
    queue(streams.tickets, 'tickets', capacity),
    // Twice the capacity: a ticket whose lease expired may be sampled twice. A run may have a single actor.
    shared(queue(streams.rollouts, 'rollouts', 2 * capacity)),
    {
      ...shared(queue(streams.uploads, 'uploads', uploadChunks(limits, chunkBytes))),
      retention: RetentionPolicy.Limits,
      max_msg_size: chunkBytes + 1_024, // headers count
    },
    // Trained groups stay until the checkpoint that consumed them, so many more than the capacity.
    queue(
      streams.scored,
      'scored',
      2 * capacity + Math.max(least, perTicket * limits.trainTickets),
    ),
    {
      ...log(streams.dead, 'dead', 10_000),
      subjects: [everyDeadLetter(names)],
      max_msgs_per_subject: lettersPerOrigin,
    },
    log(streams.events, 'events', 500_000),
    keyValueStream(buckets.config, 16),
    keyValueStream(buckets.policy, 10_000),
    // Keeps former checkpoints in case the end of the file gets damaged.
    { ...keyValueStream(buckets.ledger, 64), max_msgs_per_subject: ledgerHistory },
    // The lease of an actor silent for an hour expires, so that renamed pods do not accumulate.
    {
      ...keyValueStream(buckets.actors, 10_000),
      max_age: nanos(hourMs),
      max_msg_size: maxLeaseBytes,
    },
    // Chunks of 128 KiB. A republished adapter replaces its former entry by a rollup header.
    { ...objectStream(objects.weights, 262_144), allow_rollup_hdrs: true },
    // Room for groups of 4 MiB, in 32 chunks and an entry each, until so many wait that a checkpoint is made early.
    // Removed when their messages are acknowledged; leftovers of a crash are swept, or expire after a month.
    { ...objectStream(objects.bodies, (least / 2) * 33), max_age: nanos(30 * 24 * hourMs) },
  ];
  return settings.map((stream) => ({ ...stream, num_replicas: limits.replicas ?? 1 }));
}

/**
 * The streams from which messages other than the oldest are deleted, split by whether their content can be
 * recreated or must be kept. Only the oldest events are ever deleted. Dead letters are left out: the learner
 * detects lost tickets without them.
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

/** How many uploaded chunks one actor may have stored. */
function uploadChunks({ largestGroupBytes = 32 * 2 ** 20 }: RunLimits, chunkBytes: number): number {
  return uploadedGroups * Math.ceil(largestGroupBytes / chunkBytes);
}

/** Turns the limit of a stream into a limit per sender, that is, per subject. */
function shared(settings: StreamSettings): StreamSettings {
  const share = settings.max_msgs;
  return {
    ...settings,
    max_msgs: Math.min(fullShares * share, Math.max(share, 524_288)),
    max_msgs_per_subject: share,
    discard_new_per_subject: true,
  };
}

/** Settings of the durable consumer of `source`. One filter each: nats-server 2.9 supports no more. */
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

/** The stream of a key-value bucket, in the layout that every NATS client expects. */
function keyValueStream(bucket: string, maxMessages: number): StreamSettings {
  return {
    ...fileStream(`KV_${bucket}`, [`$KV.${bucket}.>`], maxMessages),
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.New,
    max_msgs_per_subject: 1, // only the newest value of a key
    allow_rollup_hdrs: false, // with a rollup header, the writer of one key could erase all others
  };
}

/** The stream of an object store, in the layout that every NATS client expects. */
function objectStream(bucket: string, maxMessages: number): StreamSettings {
  return {
    ...fileStream(`OBJ_${bucket}`, [`$O.${bucket}.C.>`, `$O.${bucket}.M.>`], maxMessages),
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.New,
    allow_direct: true, // chunks are read as bytes; entries are still read of the leader
    allow_rollup_hdrs: false,
    duplicate_window: nanos(hourMs), // a chunk resent after a lost answer is stored once
  };
}

function fileStream(name: string, subjects: string[], maxMessages: number): StreamSettings {
  // File storage: a restarted server must still have everything that it accepted.
  return { name, subjects, storage: StorageType.File, max_msgs: maxMessages };
}
