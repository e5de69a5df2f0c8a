import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { firstBound, nextBound } from '../../shared/rl/capacity.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { parseTinkerPath } from '../../shared/tinker/tinker-path.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const limits = { timeout: 240_000 };
const place = TrainingPlace.shared();

describe('a learner that ends in the middle', limits, () => {
  it('a resumed learner leaves the earlier summary in place until it has trained a step', async () => {
    await using ground = await TrainingGround.at(place(), 'resumed');
    const flags = { 'max-steps-off-policy': 0 }; // no group is left for the second learner
    ground.actor('actor-0');
    const first = ground.learner({ ...flags, 'max-steps': 2 });
    let mayScore = Promise.resolve();
    await ground.startScoring({ before: () => mayScore });
    assert.equal(await first.exitCode(), 0, first.errors + first.tail);

    const { opened, open } = gate();
    mayScore = opened;
    const second = ground.learner({ ...flags, 'max-steps': 100 });
    await second.says(({ msg }) => msg === 'published');
    assert.equal(Summary.parse(await ground.summary()).steps, 2);
    open();
    await until(async () => (await ground.metrics()).length > 2);
    await assert.rejects(ground.summary(), { code: 'ENOENT' });
    await second.stop('SIGKILL');
  });

  it('a killed learner resumes from its checkpoint and trains every group once', async () => {
    await using ground = await TrainingGround.at(place(), 'killed');
    const flags = {
      'max-steps': 9,
      'checkpoint-every-steps': 3,
      'max-steps-off-policy': 'auto:4',
      schedule: 'linear',
      'final-rate-share': 0,
      'replay-share': 0.5,
      numbers: '3,4',
      curriculum: 'signal',
    };
    const first = ground.learner(flags);
    ground.actor('actor-0');
    const rest = gate(); // for the second learner
    await ground.startScoring({
      isCorrect: (_rollout, index) => index % 2 === 0,
      before: (order) => (order < 6 * 4 ? Promise.resolve() : rest.opened),
    });
    await first.says(({ msg, step }) => msg === 'step trained' && step === 5);
    await first.says(({ msg, step }) => msg === 'checkpoint written' && step === 3);
    await first.stop('SIGKILL');
    rest.open();

    // NATS may still store what the first learner had sent, so only the second one knows where it begins.
    const second = ground.learner(flags);
    const { step } = await second.says(({ msg }) => msg === 'resuming from the last checkpoint');
    const restored = Number(step);
    assert(restored >= 3 && restored % 3 === 0);
    const { version: restoredAs } = await second.says(({ msg }) => msg === 'published');
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);

    const summary = Summary.parse(await ground.summary());
    assert.equal(summary.steps, 9);
    const publishedByFirst = first.log.flatMap(({ msg, version }) =>
      msg === 'published' ? Number(version) : [],
    );
    assert(publishedByFirst.length > restored);
    // A new number. One publication of the first learner may have been on its way when it died.
    const newest = Math.max(...publishedByFirst);
    assert([newest + 1, newest + 2].includes(Number(restoredAs)), String(restoredAs));
    assert.equal(summary.version, Number(restoredAs) + 9 - restored);
    assertBalanced(summary, 9 * 4);
    const metrics = await ground.metrics();
    assert.deepEqual(
      metrics.map(({ step }) => step),
      Array.from({ length: 9 }, (_, i) => i + 1),
    );
    // The bill goes on across both sessions, and names the work that the crash undid.
    const { cost } = summary;
    const { sampled, trained, evaluated, wasted, inFlight, undone } = cost!.tokens;
    assert.equal(sampled, trained + evaluated + wasted + inFlight);
    assert.equal(
      trained,
      metrics.reduce((sum, { 'trained/tokens': tokens }) => sum + tokens!, 0),
    );
    assert(Number(undone) > 0);
    const held = metrics.map(({ 'held_seconds/trainer': seconds }) => seconds!);
    assert.deepEqual(
      held,
      held.toSorted((a, b) => a - b),
    );
    // The learning rate falls linearly across both sessions.
    for (const { step, learning_rate: rate } of metrics) {
      assert(Math.abs(rate! - 0.02 * (1 - (step! - 1) / 9)) < 1e-12, `${rate} at step ${step}`);
    }
    // So does the bound for tickets, which the second learner computed from the history.
    let bound = firstBound;
    for (const metrics of await ground.metrics()) {
      assert.equal(metrics['tickets/bound'], bound.steps, `step ${metrics['step']}`);
      const [essRatio, staleness] = [metrics['ess_ratio'], metrics['staleness/mean']];
      bound = nextBound(bound, { essRatio, staleness }, 4);
    }
    const { curriculum } = (await ground.broker.ledger.read())!;
    assert.deepEqual(curriculum!.difficulties!.map(([name]) => name).sort(), [
      '3 numbers',
      '4 numbers',
    ]);
    await assertNothingLeft(ground);
  });

  it('a learner that is asked to stop checkpoints its finished steps and resumes later', async () => {
    await using ground = await TrainingGround.at(place(), 'stopped');
    const first = ground.learner({ 'checkpoint-every-steps': 100 });
    ground.actor('actor-0');
    await ground.startScoring();
    await first.says(({ msg, step }) => msg === 'step trained' && step === 3);
    assert.equal(await first.stop('SIGTERM'), 0, first.errors + first.tail);
    const stopped = Summary.parse(await ground.summary());
    assert.equal(stopped['reason'], 'stopped');
    const checkpoint = await ground.broker.ledger.read();
    assert.equal(checkpoint?.step, stopped.steps);
    assert.deepEqual(checkpoint.counts, stopped.groups);

    const goal = stopped.steps + 3;
    const second = ground.learner({ 'checkpoint-every-steps': 100, 'max-steps': goal });
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);
    assertBalanced(Summary.parse(await ground.summary()), goal * 4);
    await assertNothingLeft(ground);
  });

  it('a learner that is stopped between two optimizer steps of a batch keeps the first as a shorter step', async () => {
    await using ground = await TrainingGround.at(place(), 'between');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const flags = { 'backend-url': proxy.url, 'num-substeps': 2, 'num-minibatches': 1 };
    const first = ground.learner(flags);
    const rest = gate(); // all tickets but the two of the first optimizer step
    ground.actor('actor-0');
    await ground.startScoring({
      isCorrect: (_rollout, index) => index % 2 === 0,
      before: (order) => (order < 2 ? Promise.resolve() : rest.opened),
    });
    await until(() => proxy.operations.includes('optim_step'));
    assert.equal(await first.stop('SIGTERM'), 0, first.errors + first.tail);
    const stopped = Summary.parse(await ground.summary());
    assert.deepEqual([stopped.steps, stopped.version, stopped.groups.trained], [1, 1, 2]);

    rest.open();
    const second = ground.learner({ ...flags, 'max-steps': 3 });
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);
    assertBalanced(Summary.parse(await ground.summary()), 2 + 2 * 4);
    const trained = proxy.calls.flatMap(({ pass }) => pass?.data ?? []);
    assert.equal(trained.length, (2 + 2 * 4) * 4); // rollouts: none is sent twice
    await assertNothingLeft(ground);
  });

  it('a standby learner takes over when it gets the lease', async () => {
    await using ground = await TrainingGround.at(place(), 'followed');
    const first = ground.learner({ name: 'first' });
    ground.actor('actor-0');
    await ground.startScoring();
    await first.says(({ msg }) => msg === 'step trained');
    const second = ground.learner({ name: 'second', 'max-steps': 100 });
    const waiting = await second.says(({ leader }) => leader !== undefined);
    assert.equal(waiting['leader'], 'first');
    await first.stop('SIGTERM');
    await second.says(({ msg }) => msg === 'step trained');
    assert.equal(await second.stop('SIGTERM'), 0, second.errors + second.tail);
  });
});

describe('the checkpoint with the best evaluation', limits, () => {
  it('the best checkpoint stays the best across a kill, and the last evaluation is recorded', async () => {
    await using ground = await TrainingGround.at(place(), 'best');
    const evaluating = { 'eval-problems': 2, 'eval-samples': 1, 'eval-every-versions': 2 };
    const flags = { ...evaluating, 'checkpoint-every-steps': 2, 'max-steps': 8 };
    const first = ground.learner(flags);
    ground.actor('actor-0');
    const rest = gate(); // for the second learner
    const scoring = ground.startScoring({
      isCorrect: (_rollout, index, { split, pinnedVersion }) =>
        split === 'eval' ? pinnedVersion === 2 : index % 2 === 0,
      before: (order) => (order < 5 * 4 ? Promise.resolve() : rest.opened),
    });
    const { ledger, events } = ground.broker;
    await scoring;
    await until(async () => (await ledger.read())?.step === 4);
    await until(async () => (await events.newest('eval'))?.result.version === 4);
    await first.stop('SIGKILL');

    rest.open();
    const second = ground.learner(flags);
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);
    const states = (await ledger.read())!.states!;
    const scores = states.map(({ step, score }) => [step, score]);
    assert.deepEqual(
      [scores[0], scores.at(-1)],
      [
        [2, 1],
        [8, 0],
      ],
    );
    const weights = parseTinkerPath(states[0]!.path);
    const kept = join(ground.place.checkpoints, weights.runId, 'weights', weights.name);
    assert((await readdir(kept)).length > 0);
    const versions = (await ground.evals()).map(({ version }) => version);
    assert.deepEqual(versions.slice(0, 3), [0, 2, 4]);
    assert.equal(versions.length, 3 + 2, versions.join(', ')); // of steps 6 and 8
  });
});

describe('a learner whose backend is killed', limits, () => {
  it('a learner whose backend is killed restores the run on the new one and trains every group once', async () => {
    await using ground = await TrainingGround.at(place(), 'backend');
    const learner = ground.learner({ 'max-steps': 7, 'checkpoint-every-steps': 2 });
    ground.actor('actor-0');
    const rest = gate(); // for the new backend
    await ground.startScoring({
      isCorrect: (_rollout, index) => index % 2 === 0,
      before: (order) => (order < 5 * 4 ? Promise.resolve() : rest.opened),
    });
    await learner.says(({ msg, step }) => msg === 'step trained' && step === 4);
    await ground.backend.stop('SIGKILL');
    await ground.startBackend();
    rest.open();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert(learner.log.some(({ msg }) => msg === 'restoring the run from its last checkpoint'));
    assertBalanced(Summary.parse(await ground.summary()), 7 * 4);
    await assertNothingLeft(ground);
  });
});

describe('a learner that cannot start', limits, () => {
  it('a learner names the differences from the initial configuration of the run', async () => {
    await using ground = await TrainingGround.at(place(), 'twice');
    const first = ground.learner({});
    await new RunConfigStore(ground.broker).wait(AbortSignal.timeout(60_000));
    await first.stop('SIGKILL');
    const second = ground.learner({ 'learning-rate': 0.5 });
    assert.equal(await second.exitCode(), 2);
    assert.match(second.errors, /run twice exists with another configuration/);
    assert.match(second.errors, /adam\.learningRate: stored 0\.02, asked for 0\.5/);
  });

  it('a learner that is to choose between difficulties refuses problems of one', async () => {
    await using ground = await TrainingGround.at(place(), 'one-difficulty');
    const learner = ground.learner({ curriculum: 'signal' });
    assert.equal(await learner.exitCode(), 2);
    assert.match(learner.errors, /--curriculum signal .* have one, . numbers; give problems of/);
    const second = ground.learner({ curriculum: 'data' }); // under the same name
    await new RunConfigStore(ground.broker).wait(AbortSignal.timeout(60_000));
    await second.stop('SIGKILL');
  });

  it('a learner names an unreachable backend', async () => {
    await using ground = await TrainingGround.at(place(), 'alone');
    const learner = ground.learner({ 'backend-url': 'http://127.0.0.1:9' });
    assert.equal(await learner.exitCode(), 2);
    assert.match(learner.errors, /127\.0\.0\.1:9/);
  });
});

function assertBalanced({ groups }: Summary, trained: number): void {
  assert.equal(groups.trained, trained);
  assert.equal(
    groups.issued,
    groups.trained + groups.skippedZeroVariance + groups.stale + groups.dead + groups.outstanding,
  );
}

/** Asserts that a run that reached its last step has used all requested groups. */
async function assertNothingLeft(ground: TrainingGround): Promise<void> {
  const { counts } = (await ground.broker.ledger.read())!;
  assert.equal(counts.outstanding, 0);
  await until(async () => (await ground.broker.depths()).scored === 0);
}
