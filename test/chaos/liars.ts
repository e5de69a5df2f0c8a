import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { headers, type JsMsg } from 'nats';
import type { Broker } from '../../shared/broker/broker.js';
import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { decode } from '../../shared/wire/codec.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { messageIdOf } from '../../shared/wire/ticket-ids.js';
import { runAlteredActor } from '../support/altered-actor.js';
import { until } from '../support/waiting.js';
import type { Aftermath } from './mishaps.js';
import { liarName, type World } from './world.js';

/** Attacks of a malicious or broken actor with the rights of an actor. */
export const lies = [
  'hands a ticket back for an hour',
  'claims logprobs of -50',
  'floods the object bucket',
  'takes message ids that are to come',
  'sends garbage',
] as const;
export type Lie = (typeof lies)[number];

export async function tellLie(world: World, lie: Lie): Promise<Aftermath> {
  const broker = await world.connect({ role: 'actor', actor: liarName });
  switch (lie) {
    case 'hands a ticket back for an hour':
      (await takeTicket(broker)).nak(3_600_000);
      await broker.link.connection.flush();
      await broker[Symbol.asyncDispose]();
      // The window advances up to the staleness bound and then needs this ticket.
      return { steps: world.shape.maxStepsOffPolicy + 4 };
    case 'claims logprobs of -50':
      return claimLogprobs(world, broker);
    case 'floods the object bucket':
      return flood(world, broker);
    case 'takes message ids that are to come':
      return guess(world, broker);
    case 'sends garbage':
      return sendGarbage(world, broker);
  }
}

/** The next training ticket of the queue. */
async function takeTicket({ link, names }: Broker): Promise<JsMsg> {
  const { stream, durable } = names.consumer('tickets.train');
  for (;;) {
    const consumer = await link.js.consumers.get(stream, durable);
    const message = await consumer.next({ expires: 5_000 });
    if (message !== null) return message;
  }
}

/**
 * Only the logprobs are false. It takes and holds most of the tickets, so that its groups are no
 * longer on-policy. Resolves when it has sent the first.
 */
async function claimLogprobs(world: World, broker: Broker): Promise<Aftermath> {
  const stop = new AbortController();
  const acting = runAlteredActor(
    broker,
    {
      name: liarName,
      modelDir: embeddedModelPath,
      concurrency: 48,
      alter: (request) => request,
      answer: async (rollouts) => {
        await sleep(400);
        return rollouts.map((rollout) => ({
          ...rollout,
          behaviorLogprobs: rollout.behaviorLogprobs.map(() => -50),
        }));
      },
    },
    stop.signal,
  ).catch(() => undefined); // the actor may end because the run has quarantined it
  const { delivered } = world.witness;
  const from = delivered.length;
  const deadline = performance.now() + 30_000;
  while (
    performance.now() < deadline &&
    !delivered.slice(from).some(({ group }) => group.actor === liarName)
  ) {
    await sleep(50);
  }
  return {
    steps: 25, // well above the ten unhealthy ones in a row after which a run is given up
    end: async () => {
      stop.abort();
      await acting;
      await broker[Symbol.asyncDispose]();
      return [];
    },
  };
}

/**
 * Sends as many one-byte chunks as the bucket of large bodies holds, and large groups at full speed; then an
 * honest actor sends a large group.
 */
async function flood(world: World, broker: Broker): Promise<Aftermath> {
  const until = performance.now() + 20_000;
  let [sent, refused] = [0, 0];
  const lane = async () => {
    const chunks = `$O.${broker.names.objects.bodies}.C.${randomUUID()}`;
    while (sent < 70_000 && refused < 200 && performance.now() < until) {
      sent += 1;
      await broker.link.js.publish(chunks, new Uint8Array(1)).catch(() => (refused += 1));
    }
  };
  await Promise.all(Array.from({ length: 256 }, lane));
  await Promise.all(Array.from({ length: 8 }, () => sendLargeGroup(broker, liarName, 5_000)));
  await broker.link.connection.close();
  return {
    steps: 3,
    end: async () => {
      const honest = await world.connect({ role: 'actor', actor: 'actor-0' });
      const isStored = await sendLargeGroup(honest, 'actor-0', 30_000);
      await honest.link.connection.close();
      return isStored ? [] : ['after a flood of one actor no other could store a large group'];
    },
  };
}

/** Sends a group too large for a message, for no ticket, so it is not missed. @returns whether it was stored. */
async function sendLargeGroup(broker: Broker, actor: string, limitMs: number): Promise<boolean> {
  const samplingParams = { temperature: 1, maxTokens: 1, seed: 0 };
  const ticket: Ticket = {
    ...{ v: 1, ticketId: `large-${randomUUID()}`, order: 0, problemId: 'none', split: 'eval' },
    ...{ groupSize: 1, samplingParams, issuedAtVersion: 0, attempt: 0 },
  };
  const length = 150_000; // 1.2 MB
  const rollout = {
    tokens: new Int32Array(length),
    behaviorLogprobs: new Float32Array(length),
    versions: [[0, length]] as [number, number][],
    stopReason: 'stop' as const,
  };
  const group: RolloutGroup = {
    ...{ v: 1, ticket, actor, promptTokens: Int32Array.of(1), rollouts: [rollout] },
    ...{ startedAt: Date.now(), finishedAt: Date.now() },
  };
  const sending = { msgId: messageIdOf(ticket), signal: AbortSignal.timeout(limitMs) };
  const stored = broker
    .publish(broker.names.subjects.rollouts(actor), RolloutGroup, group, sending)
    .then(
      () => true,
      () => false,
    );
  return await Promise.race([stored, sleep(limitMs, false, { ref: false })]);
}

/** Publishes under the ids of future tickets, guessed from the id of an issued one. */
async function guess(world: World, broker: Broker): Promise<Aftermath> {
  const message = await takeTicket(broker);
  const { ticketId, order } = decode(Ticket, message.subject, message.data);
  message.nak();
  const taken = new Set<string>();
  for (let ahead = order + 8; ahead < order + 80; ahead++) {
    const digits = String(order).padStart(8, '0');
    const id = messageIdOf({
      ticketId: ticketId.replace(digits, String(ahead).padStart(8, '0')),
      attempt: 0,
    });
    if (await publishGarbage(broker, id)) taken.add(id);
  }
  const from = world.witness.delivered.length;
  await broker[Symbol.asyncDispose]();
  return {
    steps: 12,
    end: () => {
      const swallowed = world.witness.delivered
        .slice(from)
        .filter(({ group, msgId }) => group.actor !== liarName && taken.has(msgId ?? ''));
      if (swallowed.length === 0) return Promise.resolve([]);
      return Promise.resolve([
        `${swallowed.length} groups of honest actors went under message ids that a liar had taken before, and were lost`,
      ]);
    },
  };
}

/** Stores a message under that id; retries for a while, since the queue may be full. */
async function publishGarbage(broker: Broker, msgId: string): Promise<boolean> {
  const subject = broker.names.subjects.rollouts(liarName);
  for (let tries = 0; tries < 20; tries++) {
    const ack = await broker.link.js
      .publish(subject, new Uint8Array([1, 2, 3]), { msgID: msgId, headers: headers() })
      .catch(() => undefined);
    if (ack !== undefined) return !ack.duplicate;
    await sleep(50);
  }
  return false;
}

const logLimit = 250_000; // bytes: a thousand messages would have twice that, were each of them logged

/**
 * Makes a ticket of another actor end as a dead letter by an invalid group. Then it sends more dead letters
 * of its own than the stream holds, and more unreadable messages. The audit fails if the other
 * actor's letter is gone or a log grows too large.
 */
async function sendGarbage(world: World, broker: Broker): Promise<Aftermath> {
  const before = new Map([...world.kept].map(([name, { logBytes }]) => [name, logBytes]));
  const { observer } = world;
  const ticketId = await answerWrongly(observer, 'actor-0');
  await until(() => isDead(observer, ticketId));
  const { subjects } = broker.names;
  // Sent by the liar itself: the reward service would dead-letter only a few of its messages.
  const letters = await publishMany(broker, subjects.dead('actor', liarName), manyLetters);
  const accepted = await publishMany(broker, subjects.rollouts(liarName), 6_000);
  await broker[Symbol.asyncDispose]();
  return {
    steps: 3,
    end: () => {
      const loud = [...world.kept.values()].flatMap(({ name, logBytes }) => {
        const more = logBytes - (before.get(name) ?? 0);
        return more > logLimit
          ? [`${name} logged ${more} bytes for ${accepted} messages of garbage`]
          : [];
      });
      // On too slow a machine the test proves nothing about dead letters.
      const few = letters < manyLetters ? [`only ${letters} dead letters could be sent`] : [];
      return Promise.resolve([...loud, ...few]);
    },
  };
}

const manyLetters = 10_500; // their stream holds 10,000

/** @returns the number stored within some seconds. */
async function publishMany(broker: Broker, subject: string, count: number): Promise<number> {
  const deadline = performance.now() + 90_000; // at a load of 20
  let accepted = 0;
  const lane = async () => {
    while (accepted < count && performance.now() < deadline) {
      const ack = await broker.link.js.publish(subject, new Uint8Array(8)).catch(() => undefined);
      if (ack === undefined) await sleep(5);
      else accepted += 1;
    }
  };
  await Promise.all(Array.from({ length: 64 }, lane));
  return accepted;
}

async function isDead({ deadLetters }: Broker, ticketId: string): Promise<boolean> {
  for await (const letter of deadLetters.past(AbortSignal.timeout(30_000))) {
    if (ticketOf(letter)?.ticketId === ticketId) return true;
  }
  return false;
}

/**
 * Sends a group for a wrong prompt: the reward service refuses it, and its ticket dies.
 *
 * @returns the ticket's id.
 */
async function answerWrongly(broker: Broker, actor: string): Promise<string> {
  const message = await takeTicket(broker);
  const ticket = decode(Ticket, message.subject, message.data);
  const version = ticket.issuedAtVersion;
  const rollout = {
    tokens: Int32Array.of(1),
    behaviorLogprobs: Float32Array.of(-1),
    versions: [[version, 1]] as [number, number][],
    stopReason: 'stop' as const,
  };
  const group: RolloutGroup = {
    ...{ v: 1, ticket, actor, promptTokens: Int32Array.of(1, 2, 3) },
    rollouts: Array.from({ length: ticket.groupSize }, () => rollout),
    ...{ startedAt: Date.now(), finishedAt: Date.now() },
  };
  const signal = AbortSignal.timeout(30_000);
  const msgId = messageIdOf(ticket);
  await broker.publish(broker.names.subjects.rollouts(actor), RolloutGroup, group, {
    msgId,
    signal,
  });
  await message.ackAck();
  return ticket.ticketId;
}
