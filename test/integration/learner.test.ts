import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { mean } from '../../shared/base/statistics.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { namesOfTheSeed } from '../support/canonical-metrics.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';

const place = TrainingPlace.shared();

describe('a learner, an actor and a backend as processes', { timeout: 240_000 }, () => {
  it('learner, actor and backend train to the last step, learn, and account for every ticket', async () => {
    await using ground = await TrainingGround.at(place(), 'whole');
    const learner = ground.learner({
      'max-steps': 12,
      'eval-problems': 6,
      'eval-every-versions': 5,
    });
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    const summary = Summary.parse(await ground.summary());
    const { issued, trained, skippedZeroVariance, stale, dead, outstanding } = summary.groups;
    assert.deepEqual([summary.steps, summary.version], [12, 12]);
    assert.deepEqual([trained, stale, dead, outstanding], [48, 0, 0, 0]);
    assert.equal(issued, trained + skippedZeroVariance);
    assert(summary.staleness.max <= 1);
    assert.equal(summary.eval?.problems, 6);
    const evals = await ground.evals();
    assert.deepEqual(
      evals.map(({ version }) => version),
      [0, 5, 10, 12],
    );
    for (const { answers, lost } of evals) {
      assert.deepEqual([answers.sampled.total, lost], [[4, 4, 4, 4, 4, 4], 0]);
    }
    assert.equal(summary.eval.after?.sampled, evals.at(-1)!.sampled);

    const metrics = await ground.metrics();
    assert.deepEqual(
      metrics.map(({ step }) => step),
      Array.from({ length: 12 }, (_, i) => i + 1),
    );
    for (const line of metrics)
      for (const name of namesOfTheSeed) assert(Number.isFinite(line[name]));
    const correct = metrics.map((line) => line['env/all/correct']!);
    const [early, late] = [correct.slice(0, 3), correct.slice(-3)].map(mean);
    assert(late! > early!, `from ${early} to ${late}`);
    // On-policy data has ratio 1, whichever side computed the logprobs. A rollout of several versions has
    // fresh tokens on a cache of older weights, so only steps without one count.
    const onPolicy = metrics.flatMap((line) =>
      line['version_span/max'] === 1 ? (line['kl_sample_train_v2/staleness_0'] ?? []) : [],
    );
    assert(onPolicy.length > 0 && Math.max(...onPolicy) < 1e-6, onPolicy.join(', '));

    const checkpoint = await ground.broker.ledger.read();
    assert.equal(checkpoint?.step, 12);
    assert.deepEqual(checkpoint.counts, summary.groups);
    const depths = await ground.broker.depths();
    assert.deepEqual(depths, { tickets: 0, rollouts: 0, scored: 0, dead: 0 });
    const config = await readFile(join(ground.runDir, 'config.json'), 'utf8');
    assert.deepEqual(
      RunConfig.parse(JSON.parse(config)),
      await new RunConfigStore(ground.broker).get(),
    );
  });

  it('a learner replaces dead-lettered tickets, also in synchronous training', async () => {
    await using ground = await TrainingGround.at(place(), 'doomed');
    const learner = ground.learner({ 'max-steps': 4, 'max-steps-off-policy': 0 });
    ground.actor('actor-0');
    await ground.startScoring({ doomed: [1, 2, 5] });
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups, staleness } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.dead, groups.outstanding], [16, 3, 0]);
    assert.equal(groups.issued, 16 + 3 + groups.skippedZeroVariance);
    assert.equal(staleness.max, 0);
  });

  it('a learner replaces a ticket whose scored group is unreadable', async () => {
    await using ground = await TrainingGround.at(place(), 'unreadable');
    const learner = ground.learner({ 'max-steps': 3 });
    ground.actor('actor-0');
    await ground.startScoring({ lost: [1] });
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const { groups } = Summary.parse(await ground.summary());
    assert.deepEqual([groups.trained, groups.dead, groups.outstanding], [12, 1, 0]);
    const { value: letter } = await ground.broker.deadLetters
      .past(AbortSignal.timeout(9_000))
      .next();
    assert.match(letter!.reason, /^failed 5 times, last error: .* its body none is missing$/);
    assert.equal((await ground.broker.depths()).scored, 0);
  });

  it('a run ends at its time limit in the middle of a step', async () => {
    await using ground = await TrainingGround.at(place(), 'short');
    const learner = ground.learner({ 'max-minutes': 0.05, 'eval-problems': 2 });
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const summary = Summary.parse(await ground.summary());
    assert.equal(summary['reason'], 'max_minutes');
    assert.equal(summary.groups.trained, summary.steps * 4);
    assert.equal((await ground.broker.ledger.read())?.step, summary.steps);
    assert.notEqual(summary.eval?.after, null);
  });
});
