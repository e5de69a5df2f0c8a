import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import { readableId } from '../../shared/base/ticket-name.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Source } from '../../shared/broker/names.js';
import { ticketBound } from '../../shared/rl/capacity.js';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { until } from '../support/waiting.js';

const place = TrainingPlace.shared();

const bound = ticketBound(1, 4); // of the learner of a training ground
const allAtOnce = { 'tickets-ahead': bound };
const hourMs = 3_600_000;

/** An attack that an actor's key allows: it takes a ticket and asks the server to wait for an hour. */
async function hoard(broker: Broker, source: Source): Promise<number> {
  const { stream, durable } = broker.names.consumer(source);
  const consumer = await broker.link.js.consumers.get(stream, durable);
  const message = await consumer.next();
  assert(message !== null);
  message.nak(hourMs);
  await broker.link.connection.flush();
  return message.seq;
}

type HeldEvent = Extract<RunEvent, { kind: 'held' }>;

async function heldEvents({ events }: Broker): Promise<HeldEvent[]> {
  const held: HeldEvent[] = [];
  for await (const event of events.read(AbortSignal.timeout(20_000))) {
    if (event.kind === 'held') held.push(event);
    if (event.kind === 'end') break;
  }
  return held;
}

async function deaths({ deadLetters }: Broker): Promise<string[]> {
  const found: string[] = [];
  for await (const letter of deadLetters.past(AbortSignal.timeout(20_000))) {
    const name = readableId(ticketOf(letter)!.ticketId);
    found.push(`${letter.stage} ${name} of ${letter.subject.split('.')[2]!}: ${letter.reason}`);
  }
  return found;
}

describe('a run of which an actor holds tickets', { timeout: 240_000 }, () => {
  it('a run revokes a held ticket, continues, and detects a lost ticket issued after it', async () => {
    await using ground = await TrainingGround.at(place(), 'held');
    const { broker } = ground;
    const { tickets } = broker.names.streams;
    const learner = ground.learner({ ...allAtOnce, 'max-steps': 4, 'ticket-deadline-seconds': 3 });
    await until(async () => (await broker.depths()).tickets === bound);
    const oldest = await hoard(broker, 'tickets.train');
    await broker.link.jsm.streams.deleteMessage(tickets, oldest + 2); // as if acknowledged
    await ground.startScoring();
    ground.actor('actor-0');

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups, steps } = Summary.parse(await ground.summary());
    assert.deepEqual([steps, groups.trained, groups.dead, groups.stale], [4, 16, 1, 1]);
    assert.equal((await ground.metrics()).at(-1)!['dropped/actor/overdue'], 1);
    const [first] = await heldEvents(broker);
    assert.deepEqual([first?.split, first?.tickets, first?.limitSeconds], ['train', 1, 3]);
    assert.deepEqual(await deaths(broker), [
      'learner train-00000002 of tickets: lost: it is in no queue, and nothing answered it',
    ]);
  });

  it('an evaluation finishes without held answers', async () => {
    await using ground = await TrainingGround.at(place(), 'held-eval');
    const { broker } = ground;
    const learner = ground.learner({
      ...{ 'max-steps': 1, 'eval-problems': 4, 'eval-samples': 2, 'ticket-deadline-seconds': 3 },
    });
    await until(async () => (await broker.depths()).tickets >= 2 * 4);
    await hoard(broker, 'tickets.eval');
    await ground.startScoring();
    ground.actor('actor-0');

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const [before, after] = await ground.evals();
    assert.deepEqual([before?.lost, after?.lost], [1, 0]);
  });

  it('a restarted learner revokes held tickets as early as before if training depends on them', async () => {
    await using ground = await TrainingGround.at(place(), 'held-resumed');
    const { broker } = ground;
    const first = ground.learner({
      ...allAtOnce,
      ...{ 'lease-seconds': 2, 'checkpoint-every-steps': 1 },
    });
    const actor = ground.actor('actor-0');
    await ground.startScoring({ isCorrect: (_rollout, index) => index % 2 === 0 });
    await first.says(({ msg, step }) => msg === 'checkpoint written' && step === 4);
    await until(async () => (await broker.ledger.read())?.usualHoldSeconds !== undefined);
    // Killed, it might leave answered tickets in the stream, whose places no other actor frees.
    assert.equal(await actor.stop('SIGTERM'), 0, actor.errors + actor.tail);
    // Groups that were still on their way may have been skipped: each gives room for one more ticket.
    await until(
      async () =>
        (await broker.depths()).tickets > bound - 4 &&
        (await first.metric('rl_tickets_outstanding')) === bound,
    );
    assert.equal(await first.stop('SIGTERM'), 0, first.errors + first.tail);
    const checkpoint = (await broker.ledger.read())!;
    assert.equal(checkpoint.counts.outstanding, bound);
    // A busy machine would have measured many seconds, most of them of the actor's start.
    await broker.ledger.write({ ...checkpoint, usualHoldSeconds: 0.1 });
    const held = (await broker.depths()).tickets;
    for (let i = 0; i < held; i += 1) await hoard(broker, 'tickets.train');

    const steps = checkpoint.step + 2;
    const learner = ground.learner({ 'lease-seconds': 2, 'max-steps': steps });
    ground.actor('actor-1');
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups } = Summary.parse(await ground.summary());
    assert.equal(groups.trained, 4 * steps);
    assert(groups.stale > 0, 'no ticket was revoked');
  });

  it('a restarted learner reads from the stream which tickets are outstanding', async () => {
    await using ground = await TrainingGround.at(place(), 'held-again');
    const { broker } = ground;
    const first = ground.learner({ ...allAtOnce, 'max-steps': 4 });
    await until(async () => (await broker.depths()).tickets === bound);
    await hoard(broker, 'tickets.train');
    await first.stop('SIGKILL');
    const learner = ground.learner({ 'max-steps': 4, 'ticket-deadline-seconds': 3 });
    await ground.startScoring();
    ground.actor('actor-0');

    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.dead, groups.stale], [16, 0, 1]);
  });
});
