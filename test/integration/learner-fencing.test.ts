import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { DiscardPolicy } from 'nats';
import type { RunEvent } from '../../shared/wire/run-event.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const limits = { timeout: 240_000 };
const place = TrainingPlace.shared();

describe('the history of a run', limits, () => {
  it('the history has no event of a stopped leader after its successor has started', async () => {
    await using ground = await TrainingGround.at(place(), 'fenced');
    const flags = { 'checkpoint-every-steps': 1, 'lease-seconds': 5 };
    const first = ground.learner({ ...flags, name: 'first' });
    ground.actor('actor-0');
    await ground.startScoring();
    await first.says(({ msg, step }) => msg === 'step trained' && step === 3);
    const second = ground.learner({ ...flags, name: 'second' });
    await second.says(({ leader }) => leader === 'first');

    // It has a step to report and is stopped before it can.
    await holdEvents(ground);
    await first.says(({ what }) => String(what).includes('events.'));
    first.hold('SIGSTOP');
    await letEventsPass(ground);
    await second.says(({ msg, step }) => msg === 'step trained' && Number(step) >= 8);
    first.hold('SIGCONT');
    assert.equal(await first.exitCode(), 1, first.errors + first.tail);
    assert.equal(await second.stop('SIGTERM'), 0, second.errors + second.tail);

    const events = await past(ground);
    const began = events.findIndex((event) => event.kind === 'leader' && event.holder === 'second');
    assert(began > 0);
    const steps = stepsOf(events.slice(began));
    assert.deepEqual(
      steps,
      steps.map((_, i) => steps[0]! + i),
    );
    const told = (await ground.metrics()).map(({ step }) => step);
    assert.deepEqual(
      told,
      Array.from({ length: steps.at(-1)! }, (_, i) => i + 1),
    );
  });

  it('the history has every step of the checkpoint if the learner is killed before it reports the newest', async () => {
    await using ground = await TrainingGround.at(place(), 'ahead');
    const flags = { 'checkpoint-every-steps': 1, 'max-steps-off-policy': 4 };
    const first = ground.learner(flags);
    ground.actor('actor-0');
    await ground.startScoring();
    await first.says(({ msg, step }) => msg === 'step trained' && step === 2);
    await holdEvents(ground);
    const told = stepsOf(await past(ground)).at(-1)!;
    // The next step, confirmed here, shows that the candidate checkpoint is sound.
    await first.says(({ msg, step }) => msg === 'step trained' && step === told + 3);
    await first.stop('SIGKILL');
    assert.deepEqual(stepsOf(await past(ground)).at(-1), told);
    const { step } = (await ground.broker.ledger.read())!;
    assert(step <= told, `the checkpoint is of step ${step}, the history ends with ${told}`);

    const second = ground.learner({ ...flags, 'max-steps': told + 4 });
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);
    assert.deepEqual(
      (await ground.metrics()).map(({ step }) => step),
      Array.from({ length: told + 4 }, (_, i) => i + 1),
    );
  });

  it('the history has nothing of a failed session after the next session has started', async () => {
    await using ground = await TrainingGround.at(place(), 'settled');
    // Enough tickets that it never waits for a version, whose publication is delayed too.
    // A small learning rate, or the policy moves so far within 12 versions that the last step counts as unhealthy
    // and is not saved.
    const flags = {
      'checkpoint-every-steps': 1,
      'max-steps-off-policy': 20,
      'max-steps': 12,
      'learning-rate': 0.001,
    };
    const learner = ground.learner(flags);
    ground.actor('actor-0');
    const [more, rest] = [gate(), gate()]; // two steps are reported, then some are trained, and then the others
    await ground.startScoring({
      isCorrect: (_rollout, index) => index % 2 === 0,
      before: (order) =>
        order < 3 * 4 ? Promise.resolve() : order < 8 * 4 ? more.opened : rest.opened,
    });
    await learner.says(({ msg, step }) => msg === 'step trained' && step === 2);
    await holdEvents(ground);
    more.open();
    const told = stepsOf(await past(ground)).at(-1)!;
    // Steps that are missing from the history, and checkpoints that wait for them.
    await learner.says(({ msg, step }) => msg === 'step trained' && step === told + 3);
    await ground.backend.stop('SIGKILL');
    await ground.startBackend();
    rest.open();
    // The next session would have started long before the wait for the events is logged again.
    const waits = () => learner.log.filter(({ msg }) => msg === 'waiting to try again').length;
    const before = waits();
    const { ledger } = ground.broker;
    const hasBegun = async () => ((await ledger.read())?.rewinds ?? []).length > 0;
    await until(async () => waits() >= before + 2 || learner.hasEnded || (await hasBegun()));
    await letEventsPass(ground);
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    const events = await past(ground);
    const serials = events.flatMap((event) => {
      return event.kind === 'checkpoint' ? event.checkpoint.serial! : [];
    });
    assert.deepEqual(serials, rising(1, serials.length));
    const resumed = learner.log.filter(({ msg }) => msg === 'resuming from the last checkpoint');
    assert.equal(resumed.length, 1);
    const from = Number(resumed[0]!['step']);
    assert(from >= told, `it went back to ${from}`);
    assert.deepEqual(stepsOf(events).slice(from - 12), rising(from + 1, 12));
    assert.deepEqual(
      (await ground.metrics()).map(({ step }) => step),
      rising(1, 12),
    );
    await until(async () => (await ground.broker.depths()).scored === 0);
  });
});

/** Fills the event stream's limit, so that publishing an event waits. */
async function holdEvents({ broker }: TrainingGround): Promise<void> {
  const { events } = broker.names.streams;
  await until(async () => {
    const { state } = await broker.link.jsm.streams.info(events);
    const full = { max_msgs: state.messages, discard: DiscardPolicy.New };
    await broker.link.jsm.streams.update(events, full);
    return (await broker.link.jsm.streams.info(events)).state.messages === state.messages;
  });
}

async function letEventsPass({ broker }: TrainingGround): Promise<void> {
  const open = { max_msgs: 500_000, discard: DiscardPolicy.Old };
  await broker.link.jsm.streams.update(broker.names.streams.events, open);
}

async function past({ broker }: TrainingGround): Promise<RunEvent[]> {
  const events: RunEvent[] = [];
  for await (const event of broker.events.past(AbortSignal.timeout(60_000))) events.push(event);
  return events;
}

function stepsOf(events: readonly RunEvent[]): number[] {
  return events.flatMap((event) => (event.kind === 'step' ? event.step : []));
}

function rising(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}
