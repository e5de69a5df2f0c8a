import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { consume } from '../../shared/broker/consume.js';
import { notFinite } from '../../shared/wire/death-cause.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { silent } from '../support/log.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { samplingApiKey, TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const place = TrainingPlace.shared();

describe('a learner with a corrected objective', { timeout: 240_000 }, () => {
  it('a learner trains by masked decoupled PPO with a KL penalty and reports the effect of each', async () => {
    await using ground = await TrainingGround.at(place(), 'corrected');
    const learner = ground.learner({
      'max-steps': 6,
      'num-substeps': 2,
      'num-minibatches': 1,
      loss: 'ppo',
      correction: 'token_weights',
      mask: 'icepop',
      'kl-penalty': 0.1,
      'entropy-bonus': 0.01,
      advantage: 'batch_std',
      normalization: 'constant',
    });
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    const metrics = await ground.metrics();
    assert.equal(metrics.length, 6);
    for (const line of metrics) {
      assert(line['weights/mean']! > 0.5 && line['weights/mean']! < 2);
      assert(line['mask/low_share']! >= 0 && line['mask/high_share']! <= 1);
      assert.equal(line['entropy_bonus'], 0.01);
    }
    // The first step trains on samples of the base itself, so the KL is 0 whichever side computed the logprobs.
    const [first, ...later] = metrics.map((line) => line['kl_policy_base']!);
    assert(Math.abs(first!) < 1e-5, `${first}`);
    assert(Math.max(...later) > 1e-4, later.join(', '));
  });

  it('a learner trains on a server without its loss and without archives, by another loss and by links to files', async () => {
    await using ground = await TrainingGround.at(place(), 'lesser');
    await using proxy = await RecordingProxy.before(ground.backendUrl, undefined, {
      losses: ['cispo'],
      calls: ['archive', 'copy_weights'],
    });
    const learner = ground.learner({ 'max-steps': 2, 'backend-url': proxy.url });
    const offers = learner.says(({ msg }) => msg === 'what the backend offers');
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { loss, sampling, promptLogprobs, adapters, adaptersAtOnce, calls } = await offers;
    assert.deepEqual(
      { loss, sampling, promptLogprobs, adapters, adaptersAtOnce },
      {
        loss: 'cispo by importance_sampling',
        sampling: 'yes',
        promptLogprobs: 'yes',
        adapters: 'external weights',
        adaptersAtOnce: 'unknown',
      },
    );
    assert.match(String(calls), /^load_weights, .*retrieve_futures, .*; without copy_weights$/);
    assert.equal((await ground.metrics()).length, 2);
    const passes = proxy.calls.filter(({ operation }) => operation === 'forward_backward');
    assert.deepEqual([...new Set(passes.map(({ pass }) => pass?.loss))], ['importance_sampling']);
  });

  it('a diverging run is given up and keeps the previous checkpoint', async () => {
    await using ground = await TrainingGround.at(place(), 'diverged');
    const learner = ground.learner({
      'max-steps': 60,
      'checkpoint-every-steps': 1,
      'learning-rate': 3,
      'stop-kl': 0.05,
      'stop-patience': 2,
      'sample-lag': 1, // every step sees what the one before has done, however fast the actor is
      'eval-problems': 2,
    });
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 3, learner.errors + learner.tail);
    assert.match(learner.errors, /training diverged at step \d+: .*--learning-rate below 3/s);

    const summary = Summary.parse(await ground.summary());
    assert.equal(summary['reason'], 'diverged');
    const { step, checkpointStep } = summary.divergence!;
    const checkpoint = await ground.broker.ledger.read();
    assert.equal(checkpoint?.step, checkpointStep);
    // Two unhealthy steps end the run; the first of them showed the effect of the step before.
    assert(checkpointStep < step - 2, `step ${checkpointStep} is saved, ${step} diverged`);
    assert.equal(summary.eval?.after, null); // there is nothing to evaluate
    const metrics = await ground.metrics();
    assert.equal(metrics.at(-1)!['step'], step);
  });

  for (const correction of ['in_loss', 'token_weights']) {
    it(`a run with non-finite logprobs is given up at once (correction ${correction})`, async () => {
      await using ground = await TrainingGround.at(place(), `broken-${correction}`);
      const settings = { correction, loss: correction === 'in_loss' ? 'cispo' : 'ppo' };
      const learner = ground.learner({ 'max-steps': 60, 'learning-rate': 1e30, ...settings });
      ground.actor('actor-0');
      await ground.startScoring();
      assert.equal(await learner.exitCode(), 3, learner.errors + learner.tail);
      assert.match(learner.errors, /training diverged at step 2: .*logprobs are not finite/s);
      assert.equal((await ground.broker.ledger.read())?.step, 0);
    });
  }

  /** Without stale groups no step shows the effect of the first one on the weights. */
  const synchronous = { 'max-steps': 60, 'max-steps-off-policy': 0, 'learning-rate': 1e30 };
  const unpublished =
    /training diverged at step 1: policy version 1 is not published: a token drawn with it has the logprob NaN/;
  for (const { sampler, settings, told } of [
    {
      sampler: 'onnx',
      settings: {},
      told: /training diverged at step 1: the last \d+ groups .* version 1 .* not finite/s,
    },
    // Without an adapter to publish the learner draws a token itself, so that no actor gets the version.
    { sampler: 'tinker', settings: { 'publish-adapters': 'asked' }, told: unpublished },
  ]) {
    it(`a run is given up when no answer has finite logprobs (sampler ${sampler})`, async () => {
      await using ground = await TrainingGround.at(place(), `speechless-${sampler}`);
      const learner = ground.learner({ ...synchronous, ...settings });
      const backend = ['--sampler=tinker', `--backend-url=${ground.backendUrl}`];
      const flags = sampler === 'tinker' ? [...backend, `--api-key=${samplingApiKey}`] : [];
      ground.actor('actor-0', ...flags);
      ground.actor('actor-1', ...flags);
      await ground.startScoring();
      assert.equal(await learner.exitCode(), 3, learner.errors + learner.tail);
      assert.match(learner.errors, told);

      const summary = Summary.parse(await ground.summary());
      assert.equal(summary['reason'], 'diverged');
      assert.deepEqual([summary.steps, summary.divergence?.checkpointStep], [1, 0]);
      assert.equal((await ground.broker.ledger.read())?.step, 0);
    });
  }

  it('a run is not given up because of one fast actor with non-finite logprobs', async () => {
    await using ground = await TrainingGround.at(place(), 'one-of-two');
    const learner = ground.learner({
      'max-steps': 5,
      'max-steps-off-policy': 0,
      'groups-per-batch': 8,
    });
    const healthy = ground.actor('healthy', '--concurrency=1');
    const rest = gate();
    let held = 0; // groups of the healthy actor that have not arrived yet
    const isTrained = () =>
      learner.log.some(({ msg, step }) => msg === 'step trained' && step === 2);
    await ground.startScoring({
      before: async () => {
        if (!isTrained()) return;
        if (held++ === 0) healthy.hold('SIGSTOP'); // perhaps with one more ticket, but not with all
        await rest.opened;
      },
    });
    await until(() => held > 0);
    const over = new AbortController();
    const broken = consume(
      ground.broker,
      'tickets.train',
      Ticket,
      { signal: over.signal, log: silent, stage: 'actor', concurrency: 2 },
      ({ value: { issuedAtVersion } }) => Promise.reject(notFinite(issuedAtVersion)),
    );
    const died = async () => (await ground.broker.depths()).dead; // the log omits repetitions
    await until(async () => (await died()) > 5 * 8 || learner.hasEnded);
    over.abort();
    await broken;
    healthy.hold('SIGCONT');
    rest.open();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.equal(Summary.parse(await ground.summary()).groups.trained, 5 * 8);
  });

  it('a session does not mistake the dead letters of the previous one for its own', async () => {
    await using ground = await TrainingGround.at(place(), 'again');
    const first = ground.learner(synchronous);
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await first.exitCode(), 3, first.errors + first.tail);
    const second = ground.learner(synchronous); // it reads the same dead letters
    assert.equal(await second.exitCode(), 3, second.errors + second.tail);
    assert(second.log.some(({ msg, step }) => msg === 'step trained' && step === 1));
    assert.match(second.errors, /training diverged at step 1: .* version 3 /s);
  });

  it('a run is given up when no group has variance, and reports their reward', async () => {
    await using ground = await TrainingGround.at(place(), 'hopeless');
    const learner = ground.learner({
      'max-steps': 3,
      'stop-zero-variance': 12,
      'eval-problems': 2,
    });
    ground.actor('actor-0');
    await ground.startScoring({ isCorrect: () => false });
    assert.equal(await learner.exitCode(), 3, learner.errors + learner.tail);
    assert.match(learner.errors, /the last 12 groups had no variance.*easier problems/s);

    const summary = Summary.parse(await ground.summary());
    assert.equal(summary['reason'], 'no_signal');
    assert.deepEqual(summary.drought, { groups: 12, reward: 0 });
    assert.equal(summary.steps, 0);
    assert.equal(summary.eval?.after?.sampled, 0);
  });

  it('a run is given up as diverged when its groups lose variance and reward', async () => {
    await using ground = await TrainingGround.at(place(), 'collapsed');
    const settings = { 'max-steps': 60, 'stop-zero-variance': 12, 'checkpoint-every-steps': 1 };
    const learner = ground.learner(settings);
    ground.actor('actor-0');
    let isForgotten = false;
    await ground.startScoring({
      before: (order) => {
        isForgotten ||= order >= 20;
        return Promise.resolve();
      },
      isCorrect: (_, index) => !isForgotten && index > 0,
    });
    assert.equal(await learner.exitCode(), 3, learner.errors + learner.tail);

    const summary = Summary.parse(await ground.summary());
    assert.equal(summary['reason'], 'diverged');
    assert.match(
      summary.divergence!.reason,
      /12 groups in a row had no variance, .* reward was 0$/,
    );
    const checkpoint = await ground.broker.ledger.read();
    assert.equal(checkpoint?.step, summary.divergence!.checkpointStep);
    assert(checkpoint.step > 0);
  });
});
