import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { TrainingGround, TrainingPlace } from '../support/training-ground.js';

const place = TrainingPlace.shared();

/** 40 examples, 8 a step, so 5 steps an epoch; the settings of rollouts are left out. */
const onExamples = {
  data: 'solver',
  'batch-examples': 8,
  'held-out-examples': 4,
  'max-tokens': 16,
  'groups-per-batch': undefined,
  'max-steps-off-policy': undefined,
};

describe('a learner on examples', { timeout: 240_000 }, () => {
  it('a learner trains on every solution once per epoch, without actors, and reports the loss', async () => {
    await using ground = await TrainingGround.at(place(), 'examples');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const learner = ground.learner({ ...onExamples, epochs: 3, 'backend-url': proxy.url });
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    const steps = stepsOf(proxy);
    assert.equal(steps.length, 15);
    for (const epoch of [0, 1, 2]) {
      const texts = steps.slice(5 * epoch, 5 * epoch + 5).flat();
      assert.deepEqual([texts.length, new Set(texts).size], [40, 40]);
    }
    assert.deepEqual(new Set(steps.slice(0, 5).flat()), new Set(steps.slice(5, 10).flat()));

    const metrics = await ground.metrics();
    const nll = metrics.map((line) => line['sft/nll']!);
    const mean = (values: number[]) => values.reduce((sum, each) => sum + each, 0) / values.length;
    assert(mean(nll.slice(-5)) < mean(nll.slice(0, 5)) - 0.3, nll.join(', '));
    assert.deepEqual(
      metrics.map((line) => line['sft/epoch']),
      Array.from({ length: 15 }, (_, i) => (i + 1) / 5),
    );
    assert(metrics.every((line) => line['sft/examples'] === 8 && line['sft/tokens']! > 8 * 5));
    assert.deepEqual(
      metrics.flatMap((line) =>
        Object.keys(line).filter((key) => /^(env|staleness|kl_)/.test(key)),
      ),
      [],
    );
    const summary = Summary.parse(await ground.summary());
    assert.deepEqual([summary.steps, summary['reason']], [15, 'max_steps']);
    assert.deepEqual([summary.supervised?.examples, summary.supervised?.epochs], [120, 3]);
    assert(summary.supervised!.heldOutNll! < metrics[0]!['sft/held_out_nll']!);
    const config = await new RunConfigStore(ground.broker).get();
    assert.equal(config?.loss.name, 'cross_entropy');
    assert.equal(config.supervised?.data, 'solver');
  });

  it('the loss is the mean over the trained tokens, and prompts have no weight', async () => {
    await using ground = await TrainingGround.at(place(), 'weights');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const chats = join(ground.folder, 'pairs.jsonl');
    const pairs = ['1', '22', '333', '4444'].map((answer) => ({ prompt: '1+2=', answer }));
    await writeFile(chats, pairs.map((pair) => `${JSON.stringify(pair)}\n`).join(''));
    const settings = { data: chats, 'batch-examples': 4, 'held-out-examples': 0, epochs: 1 };
    const learner = ground.learner({ ...onExamples, ...settings, 'backend-url': proxy.url });
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const passes = proxy.calls.flatMap(({ operation, pass }) =>
      operation === 'forward_backward' ? (pass?.data ?? []) : [],
    );
    const trained = 1 + 2 + 3 + 4 + 4; // the answers, each with its end
    for (const { inputs } of passes) {
      const weights = [...inputs.weights!];
      assert.deepEqual(weights.slice(0, 3), [0, 0, 0]);
      assert(weights.slice(3).every((weight) => Math.abs(weight - 1 / trained) < 1e-6));
    }
    const [metrics] = await ground.metrics();
    assert.deepEqual([metrics!['sft/tokens'], metrics!['sft/prompt_tokens']], [trained, 16]);
  });

  it('a killed learner goes on at its checkpoint with the examples that its weights have not seen', async () => {
    await using ground = await TrainingGround.at(place(), 'killed-examples');
    await using proxy = await RecordingProxy.before(ground.backendUrl);
    const flags = {
      ...onExamples,
      ...{ epochs: 4, 'checkpoint-every-steps': 3, 'backend-url': proxy.url },
      ...{ schedule: 'linear', 'final-rate-share': 0 },
    };
    const first = ground.learner(flags);
    await first.says(({ msg, step }) => msg === 'checkpoint written' && step === 6);
    await first.stop('SIGKILL');
    const before = stepsOf(proxy);
    const second = ground.learner(flags);
    const { step } = await second.says(({ msg }) => msg === 'resuming from the last checkpoint');
    const restored = Number(step);
    assert(restored >= 6 && restored % 3 === 0);
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);

    const after = stepsOf(proxy).slice(before.length);
    const trained = [...before.slice(0, restored), ...after];
    assert.equal(trained.length, 20);
    // What the first learner had sent beyond its checkpoint is sent again in the same batches.
    const repeated = before.slice(restored);
    assert.deepEqual(after.slice(0, repeated.length), repeated);
    for (const epoch of [0, 1, 2, 3]) {
      assert.equal(new Set(trained.slice(5 * epoch, 5 * epoch + 5).flat()).size, 40);
    }
    const metrics = await ground.metrics();
    assert.deepEqual(
      metrics.map((line) => line['step']),
      Array.from({ length: 20 }, (_, i) => i + 1),
    );
    for (const line of metrics) {
      const rate = 0.02 * (1 - (line['step']! - 1) / 20);
      assert(Math.abs(line['learning_rate']! - rate) < 1e-12, `step ${line['step']}`);
    }
    assert.equal(Summary.parse(await ground.summary()).groups.trained, 160);
  });

  it('a learner on examples that is asked to stop saves its finished steps', async () => {
    await using ground = await TrainingGround.at(place(), 'stopped-examples');
    const flags = { ...onExamples, 'checkpoint-every-steps': 100 };
    const first = ground.learner(flags); // without an end
    await first.says(({ msg, step }) => msg === 'step trained' && step === 3);
    assert.equal(await first.stop('SIGTERM'), 0, first.errors + first.tail);
    const stopped = Summary.parse(await ground.summary());
    assert.equal(stopped['reason'], 'stopped');
    const checkpoint = await ground.broker.ledger.read();
    assert.deepEqual(
      [checkpoint?.step, checkpoint?.consumedBelow],
      [stopped.steps, 8 * stopped.steps],
    );
    const again = ground.learner(flags);
    await again.says(({ msg }) => msg === 'step trained');
    assert.equal(await again.metric('rl_unhealthy_steps'), 0); // its steps have no KL to judge
    assert.equal(await again.stop('SIGTERM'), 0, again.errors + again.tail);
    const { steps } = Summary.parse(await ground.summary());
    const last = ground.learner({ ...flags, 'max-steps': steps + 2 });
    assert.equal(await last.exitCode(), 0, last.errors + last.tail);
    assert.equal(Summary.parse(await ground.summary()).steps, steps + 2);
  });

  it('a run that goes on with more epochs trains on every example of the last one', async () => {
    await using ground = await TrainingGround.at(place(), 'more-epochs');
    const flags = { ...onExamples, 'batch-examples': 12 }; // the fourth batch of an epoch is short
    const first = ground.learner({ ...flags, epochs: 1 });
    assert.equal(await first.exitCode(), 0, first.errors + first.tail);
    assert.equal(Summary.parse(await ground.summary()).steps, 4);
    const second = ground.learner({ ...flags, epochs: 3 });
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);
    const { steps, supervised } = Summary.parse(await ground.summary());
    // 4 steps and 7 for the other 80 examples; a run of three epochs from the start takes 10.
    assert.deepEqual([steps, supervised?.examples, supervised?.epochs], [11, 120, 3]);
  });

  it('a problem without a solution is left out and counted, also after a restart', async () => {
    await using ground = await TrainingGround.at(place(), 'unsolvable');
    const path = join(ground.folder, 'rows.jsonl');
    const rows = Array.from({ length: 44 }, (_, i) => ({ nums: [1, 2, i], target: 3 + i }));
    rows[20] = { nums: [1, 1, 1], target: 50 };
    rows[30] = { nums: [1, 1, 2], target: 50 };
    await writeFile(path, rows.map((row) => JSON.stringify(row)).join('\n'));
    const generated = ['train-size', 'numbers', 'max-number', 'max-target'];
    const settings = {
      ...onExamples,
      ...{ 'held-out-examples': 0, 'batch-examples': 5, dataset: path, 'test-size': 4 },
      ...Object.fromEntries(generated.map((flag) => [flag, undefined])),
    };
    const first = ground.learner({ ...settings, epochs: 1 });
    assert.equal(await first.exitCode(), 0, first.errors + first.tail);
    const told = first.log.find(({ msg }) => msg === 'problems left out of training');
    assert.deepEqual([told?.['checked'], told?.['reasons']], [40, { 'without a solution': 2 }]);
    const second = ground.learner({ ...settings, epochs: 2 });
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);
    const { steps, supervised, groups } = Summary.parse(await ground.summary());
    assert.deepEqual([steps, supervised?.epochs], [16, 2]);
    assert.deepEqual([supervised?.examples, supervised?.leftOut], [76, 4]);
    assert.deepEqual([groups.issued, groups.trained, groups.dead], [80, 76, 4]);
  });

  it('a learner on examples counts its steps, and publishes and evaluates the versions of every Nth step and of its ends', async () => {
    await using ground = await TrainingGround.at(place(), 'evaluated-examples');
    const learner = ground.learner({
      ...onExamples,
      ...{ epochs: 1, 'eval-problems': 3, 'eval-samples': 2, 'eval-every-versions': 2 },
    });
    await learner.says(({ msg, step }) => msg === 'step trained' && step === 5);
    for (const name of ['rl_steps_total', 'rl_optimizer_steps_total']) {
      assert.equal(await learner.metric(name), 5, name);
    }
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const versions = (await ground.evals()).map(({ version }) => version);
    assert.deepEqual([versions[0], versions.at(-1)], [0, 5]);
    const published = learner.log.flatMap(({ msg, version }) =>
      msg === 'published' ? version : [],
    );
    assert.deepEqual(published, [0, 2, 4, 5]);
    const { eval: evaluation } = Summary.parse(await ground.summary());
    assert.notEqual(evaluation?.before ?? null, null);
    assert.notEqual(evaluation?.after ?? null, null);
  });

  it('a learner on examples is given up when its weights are no longer finite', async () => {
    await using ground = await TrainingGround.at(place(), 'broken-examples');
    const learner = ground.learner({ ...onExamples, epochs: 4, 'learning-rate': 1e30 });
    assert.equal(await learner.exitCode(), 3, learner.errors + learner.tail);
    assert.match(
      learner.errors,
      /training diverged at step \d: .* a --learning-rate below 1e\+30, --warmup-steps or larger batches; run/s,
    );
    assert.equal((await ground.broker.ledger.read())?.step, 0);
  });

  it('a run starts from the weights that another has saved, with a new optimizer and at step 0', async () => {
    await using ground = await TrainingGround.at(place(), 'first');
    const first = ground.learner({ ...onExamples, epochs: 2 });
    assert.equal(await first.exitCode(), 0, first.errors + first.tail);
    const { supervised } = Summary.parse(await ground.summary());
    const { statePath } = (await ground.broker.ledger.read())!;

    const flags = { ...onExamples, 'run-dir': join(ground.folder, 'next'), 'max-steps': 1 };
    const from = { from: statePath, 'from-run': 'first@10' };
    const refused = ground.learner({ ...flags, ...from, run: 'next', 'lora-rank': 8 });
    assert.equal(await refused.exitCode(), 2, refused.errors + refused.tail);
    assert.match(
      refused.errors,
      /--from first@10: the backend cannot load .* rank 8 of tiny .*lora_rank is 4/s,
    );

    // The run had not begun, so its name is free for other settings.
    const next = ground.learner({ ...flags, ...from, run: 'next' });
    assert.equal(await next.exitCode(), 0, next.errors + next.tail);
    const [line, ...more] = (await readFile(join(flags['run-dir'], 'metrics.jsonl'), 'utf8'))
      .trimEnd()
      .split('\n')
      .map((text) => JSON.parse(text) as Record<string, number>);
    assert.deepEqual([line!['step'], more.length], [1, 0]);
    // Measured before its first step: the weights are those of the first run's end.
    const [before, found] = [supervised!.heldOutNll!, line!['sft/held_out_nll']!];
    assert(Math.abs(before - found) < 1e-5, `${before}, ${found}`);
    const config = JSON.parse(
      await readFile(join(flags['run-dir'], 'config.json'), 'utf8'),
    ) as object;
    assert.deepEqual(RunConfig.parse(config).from, { path: statePath, run: 'first@10' });
    const summary = await readFile(join(flags['run-dir'], 'summary.json'), 'utf8');
    assert.equal(Summary.parse(JSON.parse(summary)).from, 'first@10');
  });
});

/** The texts of each optimizer step, as the backend got them. */
function stepsOf({ calls }: RecordingProxy): string[][] {
  const steps: string[][] = [];
  let texts: string[] = [];
  let sentTo: string | undefined; // a restored run has a name of its own at the backend
  for (const { operation, pass } of calls) {
    if (operation === 'forward_backward') {
      if (pass!.modelId !== sentTo) texts = []; // of a step that a killed learner had begun
      sentTo = pass!.modelId;
      texts.push(...pass!.data.map(({ tokens }) => tokens.join()));
    }
    if (operation !== 'optim_step') continue;
    steps.push(texts);
    texts = [];
  }
  return steps;
}
