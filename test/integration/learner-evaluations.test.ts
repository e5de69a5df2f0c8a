import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import { runOffbeat } from '../support/offbeat.js';
import { samplingApiKey, TrainingGround, TrainingPlace } from '../support/training-ground.js';
import { gate, until } from '../support/waiting.js';

const place = TrainingPlace.shared();

describe('an evaluation that no actor answers for a while', { timeout: 240_000 }, () => {
  it('an unanswered evaluation does not delay training, keeps its version and reports its lag', async () => {
    await using ground = await TrainingGround.at(place(), 'patient');
    const { policy } = ground.broker;
    // Several tickets for each problem, since a ticket requests at most the 4 answers of a group.
    const evaluating = { 'eval-problems': 3, 'eval-samples': 6, 'eval-every-versions': 15 };
    const learner = ground.learner({ 'max-steps': 40, ...evaluating });
    ground.actor('trains', '--splits=train');
    const evaluates = ground.actor('evaluates', '--splits=eval');
    await ground.startScoring();
    await learner.says(({ msg }) => msg === 'evaluated'); // version 0, beside the first steps
    assert.equal(await evaluates.stop('SIGTERM'), 0);

    await learner.says(({ msg, version }) => msg === 'published' && version === 30);
    // An actor's lease names a version while it is valid, an evaluation until it is over.
    await until(async () => !(await policy.versions()).includes(14));
    assert((await policy.versions()).includes(15));

    ground.actor('returns', '--splits=eval');
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    const evals = await ground.evals();
    assert.deepEqual(
      evals.map(({ version }) => version),
      [0, 15, 30, 40],
    );
    const [, late, , last] = evals;
    assert(late!.lag >= 15, `lag ${late!.lag}`);
    assert.equal(last!.lag, 0);
    for (const { answers } of evals) assert.deepEqual(answers.sampled.total, [6, 6, 6]);
    const told = (await ground.metrics()).flatMap((line) => line['eval/version'] ?? []);
    assert.equal(told[0], 0);
  });
});

describe('an evaluation on problems of three and of four numbers', { timeout: 240_000 }, () => {
  it('an evaluation reports problems of three and of four numbers separately everywhere', async () => {
    await using ground = await TrainingGround.at(place(), 'kinds');
    const held = { numbers: '3,4', 'test-size': 12, 'eval-problems': 12, 'eval-samples': 2 };
    const learner = ground.learner({ 'max-steps': 1, ...held });
    const seen = { 3: new Set<string>(), 4: new Set<string>() };
    const training = gate();
    ground.actor('actor-0');
    await ground.startScoring({
      before: () => training.opened,
      isCorrect: (_rollout, index, { split, problemId, samplingParams }) => {
        const size = problemId.split('=')[0]!.split(',').length;
        assert(size === 3 || size === 4, problemId);
        if (split === 'train') return index % 2 === 0;
        seen[size].add(problemId);
        const isGreedy = samplingParams.temperature === 0;
        // Three numbers: the first answer and the greedy one are right. Four: only the greedy one is wrong.
        return size === 3 ? isGreedy || index === 0 : !isGreedy;
      },
    });
    await learner.says(({ msg }) => msg === 'evaluated');
    const [three, four] = [seen[3].size, seen[4].size];
    assert(three > 0 && four > 0 && three + four === 12, `${three} + ${four}`);
    const scores = await Promise.all(
      ['3 numbers', '4 numbers', 'all'].flatMap((difficulty) =>
        ['sampled', 'greedy'].map((metric) =>
          learner.metric(`rl_eval_score{metric="${metric}",difficulty="${difficulty}"}`),
        ),
      ),
    );
    const overall = [(three / 2 + four) / 12, three / 12];
    assertClose(scores, [0.5, 1, 1, 0, ...overall]);
    training.open();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    const evals = await ground.evals();
    assert.deepEqual(
      evals.map(({ version }) => version),
      [0, 1],
    );
    for (const { problems, sampled, greedy, byDifficulty } of evals) {
      assert.equal(problems, 12);
      assertClose([sampled, greedy], overall);
      assert.deepEqual(byDifficulty, [
        {
          ...{ difficulty: '3 numbers', problems: three },
          ...{ sampled: 0.5, greedy: 1, passAt: { 1: 0.5, 2: 1 } },
        },
        {
          ...{ difficulty: '4 numbers', problems: four },
          ...{ sampled: 1, greedy: 0, passAt: { 1: 1, 2: 1 } },
        },
      ]);
    }
    const [line] = await ground.metrics();
    const told = ['3 numbers', '4 numbers'].map((difficulty) =>
      ['sampled', 'greedy', 'pass@1', 'pass@2'].map((rate) => line![`eval/${rate}/${difficulty}`]),
    );
    assert.deepEqual(told, [
      [0.5, 1, 0.5, 1],
      [1, 0, 1, 1],
    ]);
  });
});

function assertClose(found: readonly number[], expected: readonly number[]): void {
  assert.equal(found.length, expected.length);
  found.forEach((value, i) => {
    assert(Math.abs(value - expected[i]!) < 1e-9, `${i}: ${value}, not ${expected[i]}`);
  });
}

describe('offbeat eval without the folder of the run', { timeout: 240_000 }, () => {
  it('offbeat eval without a run folder uses the given NATS server and backend', async () => {
    await using ground = await TrainingGround.at(place(), 'elsewhere');
    const learner = ground.learner({ 'max-steps': 2 });
    ground.actor('actor-0');
    await ground.startScoring();
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);

    const folder = await mkdtemp(join(tmpdir(), 'offbeat-elsewhere-'));
    const evaluate = (...flags: string[]) => {
      const run = ['--run=elsewhere', `--nats-url=${ground.server.url}`, '--json'];
      const model = [`--model-dir=${ground.model.path}`, '--problems=3', '--actors=1'];
      return runOffbeat(['eval', ...run, ...model, ...flags], folder);
    };
    const backend = [`--backend-url=${ground.backendUrl}`, '--sampler=tinker'];
    const keyless = await evaluate(...backend);
    assert.equal(keyless.code, 2);
    assert.match(keyless.err, /give its key with --api-key, or as TINKER_API_KEY/);
    assert.doesNotMatch(keyless.err, /logs/); // nothing was started
    for (const [flags, version] of [
      [[], 2],
      [[...backend, `--api-key=${samplingApiKey}`, '--version=1'], 1],
    ] as const) {
      const { code, out, err } = await evaluate(...flags);
      assert.equal(code, 0, err);
      const result = JSON.parse(out) as EvalResult;
      assert.deepEqual([result.version, result.problems], [version, 3]);
    }
    const unknown = await runOffbeat(
      ['eval', '--run=nobody', `--nats-url=${ground.server.url}`],
      folder,
    );
    assert.equal(unknown.code, 2);
    assert.match(unknown.err, /the NATS server knows no run nobody/);
    await rm(folder, { recursive: true });
  });
});
