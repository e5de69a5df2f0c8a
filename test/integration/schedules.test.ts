import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate } from '../support/waiting.js';

const place = TrainingPlace.shared();

/** AdamW settings that differ from every default of ours and of a server. */
const flags = {
  'learning-rate': 0.01,
  beta1: 0.8,
  beta2: 0.9,
  eps: 1e-8,
  'weight-decay': 0.05,
  'grad-clip-norm': 0.7,
};
const sent = { beta1: 0.8, beta2: 0.9, eps: 1e-8, weight_decay: 0.05, grad_clip_norm: 0.7 };

/** The learning rates of four steps by schedule, computed by hand; before step k, (k - 1) / 4 of the run is done. */
const schedules: [flags: Record<string, string | number>, rates: number[]][] = [
  [{ schedule: 'constant', 'warmup-steps': 2 }, [0.005, 0.01, 0.01, 0.01]],
  [
    { schedule: 'linear', 'warmup-steps': 2, 'final-rate-share': 0.2 },
    [0.01 * 0.5, 0.01 * 0.8, 0.01 * 0.6, 0.01 * 0.4],
  ],
  [
    { schedule: 'cosine', 'warmup-steps': 1 }, // to a tenth: 0.1 + 0.45 (1 + cos of 0, 45, 90 and 135 degrees)
    [0.01, 0.01 * (0.55 + 0.45 * Math.SQRT1_2), 0.01 * 0.55, 0.01 * (0.55 - 0.45 * Math.SQRT1_2)],
  ],
];

/** Every group has variance. */
const isCorrect = (_rollout: unknown, index: number) => index % 2 === 0;

describe('the optimizer steps of a run of four steps', { timeout: 240_000 }, () => {
  for (const [i, [schedule, rates]] of schedules.entries()) {
    it(`optimizer steps reach the backend with the rates of ${JSON.stringify(schedule)}`, async () => {
      await using ground = await TrainingGround.at(place(), `schedule-${i}`);
      await using proxy = await RecordingProxy.before(ground.backendUrl);
      const learner = ground.learner({
        'backend-url': proxy.url,
        'max-steps': rates.length,
        'num-substeps': 2,
        'num-minibatches': 1,
        ...flags,
        ...schedule,
      });
      ground.actor('actor-0');
      await ground.startScoring({ isCorrect });
      assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

      const steps = proxy.calls.flatMap(({ adam }) => (adam === undefined ? [] : [adam]));
      const expected = rates.flatMap((rate) => [rate, rate]); // all substeps of a step have the same rate
      assert.equal(steps.length, expected.length);
      steps.forEach(({ learning_rate: rate, ...rest }, i) => {
        assert(Math.abs(rate! - expected[i]!) < 1e-12, `${i}: ${rate}`);
        assert.deepEqual(rest, sent); // every setting is sent, since servers differ in their defaults
      });
      const told = (await ground.metrics()).map((line) => line['learning_rate']!);
      assert.equal(told.length, rates.length);
      told.forEach((rate, i) => {
        assert(Math.abs(rate - rates[i]!) < 1e-12, `${i}: ${rate}`);
      });
    });
  }

  it('the schedule continues where a stopped learner left off', async () => {
    await using ground = await TrainingGround.at(place(), 'resumed');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const settings = {
      'backend-url': proxy.url,
      'max-steps': 8,
      schedule: 'linear',
      'warmup-steps': 2,
      'final-rate-share': 0.2,
      ...flags,
    };
    const first = ground.learner(settings);
    const rest = gate(); // all but the tickets of three steps
    ground.actor('actor-0');
    const before = (order: number) => (order < 3 * 4 ? Promise.resolve() : rest.opened);
    await ground.startScoring({ isCorrect, before });
    await first.says(({ msg, step }) => msg === 'step trained' && step === 3);
    assert.equal(await first.stop('SIGTERM'), 0, first.errors + first.tail);
    rest.open();
    const sentBefore = proxy.calls.length;
    assert.equal((await ground.broker.ledger.read())?.step, 3);
    const second = ground.learner(settings);
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);

    const rates = proxy.calls
      .slice(sentBefore)
      .flatMap(({ adam }) => adam?.['learning_rate'] ?? []);
    assert.equal(rates.length, 8 - 3);
    rates.forEach((rate, i) => {
      // The warm-up is over.
      const done = (3 + i) / 8;
      assert(Math.abs(rate - 0.01 * (1 - 0.8 * done)) < 1e-12, `${i}: ${rate}`);
    });
  });
});

describe('a run whose learning rate ends at 0', { timeout: 240_000 }, () => {
  it('a learner that is killed in its last evaluation is followed by one that makes it and trains nothing', async () => {
    await using ground = await TrainingGround.prepare('ends-at-0');
    const settings = {
      ...{ schedule: 'linear', 'final-rate-share': 0, 'checkpoint-every-steps': 1 },
      ...{ 'eval-problems': 3, 'eval-samples': 1, 'eval-every-versions': 0 },
    };
    const killed = ground.learner({ ...settings, 'max-steps': 2 });
    ground.actor('trains', '--splits=train');
    const evaluates = ground.actor('evaluates', '--splits=eval');
    await ground.startScoring();
    await killed.says(({ msg }) => msg === 'evaluated'); // version 0
    await evaluates.stop('SIGTERM');
    await killed.says(({ msg, version }) => msg === 'evaluating' && version !== 0);
    await killed.stop('SIGKILL');
    assert.equal((await ground.broker.ledger.read())?.progress, 1);

    // A limit in minutes is one of each process, so that there is time left for steps.
    const byTime = { ...settings, 'max-minutes': 3 };
    const stopped = ground.learner(byTime);
    await stopped.says(({ msg, version }) => msg === 'evaluating' && version !== 0);
    assert.equal(await stopped.stop('SIGTERM'), 0, stopped.errors + stopped.tail);
    assert.equal(Summary.parse(await ground.summary())['reason'], 'stopped');

    ground.actor('returns', '--splits=eval');
    const last = ground.learner(byTime);
    assert.equal(await last.exitCode(), 0, last.errors + last.tail);
    const summary = Summary.parse(await ground.summary());
    assert.deepEqual([summary['reason'], summary.steps], ['max_minutes', 2]);
    assert.notEqual(summary.eval?.after, null);
    assert.deepEqual(
      (await ground.metrics()).map(({ step }) => step),
      [1, 2],
    );

    const further = ground.learner(byTime);
    assert.equal(await further.exitCode(), 2, further.tail);
    assert.match(further.errors, /--final-rate-share 0 leaves no learning rate for further steps/);
  });
});
