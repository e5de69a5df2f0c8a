import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { register } from 'prom-client';
import {
  Evaluations,
  openEvaluations,
  type OpenEvaluationsOptions,
} from '../../../learner/evaluation/evaluations.js';
import { TaskScope } from '../../../shared/base/task-scope.js';
import type { EvalResult } from '../../../shared/wire/eval-result.js';
import { silent } from '../../support/log.js';
import { evalResult, runConfig } from '../../support/messages.js';
import { never } from '../../support/waiting.js';

describe('evaluations every 10 steps', () => {
  const [three] = evalResult().byDifficulty;
  const byDifficulty = [three!, { ...three!, difficulty: '4 numbers', greedy: 0 }];
  let begun: number[];
  let emitted: number[];
  let finish: ((outcome: 'success' | 'failure') => Promise<void>)[]; // one for each evaluation begun
  let stop: AbortController;
  const step = (step: number, version = step) => ({ step, version });
  const open = (last?: EvalResult, everyVersions = 10) =>
    new Evaluations({
      evaluator: {
        run: (version) =>
          new Promise((resolve, reject) => {
            begun.push(version);
            finish.push(async (outcome) => {
              if (outcome === 'success') resolve(evalResult({ version, lag: 4, byDifficulty }));
              else reject(new Error('every ticket died'));
              await setImmediate();
            });
          }),
      },
      everyVersions,
      last,
      watch: (evaluation) => evaluation,
      emit: ({ version }) => {
        emitted.push(version);
        return Promise.resolve();
      },
      signal: stop.signal,
      log: silent,
    });

  beforeEach(() => {
    begun = [];
    emitted = [];
    finish = [];
    stop = new AbortController();
  });

  it('an evaluation begins when it is due, and pins its version until it has ended', async () => {
    const evaluations = open();
    for (let n = 1; n <= 12; n++) evaluations.consider(step(n));
    assert.deepEqual([begun, evaluations.pinnedVersions], [[10], [10]]);
    await finish[0]!('success');
    assert.deepEqual([emitted, evaluations.pinnedVersions], [[10], []]);
    assert.equal(evaluations.of(10)?.version, 10);
  });

  it('evaluations run one after another, and only the newest waiting one is kept', async () => {
    const evaluations = open();
    for (let n = 1; n <= 39; n++) evaluations.consider(step(n));
    assert.deepEqual([begun, evaluations.pinnedVersions], [[10], [10, 30]]);
    await finish[0]!('success');
    assert.deepEqual([begun, evaluations.pinnedVersions], [[10, 30], [30]]);
    await finish[1]!('success');
    assert.deepEqual(emitted, [10, 30]);
  });

  it('evaluations stay at the same steps after a crash has raised the versions', () => {
    const evaluations = open(evalResult({ version: 50 }));
    for (let n = 46; n < 60; n++) evaluations.consider(step(n, n + 7));
    assert.deepEqual(begun, [57]);
  });

  it('the last version is evaluated after the running evaluation, and only once', async () => {
    const evaluations = open();
    evaluations.consider(step(10));
    const last = evaluations.measure(14);
    assert.deepEqual(begun, [10]);
    await finish[0]!('success');
    await setImmediate();
    assert.deepEqual(begun, [10, 14]);
    await finish[1]!('success');
    assert.equal((await last)?.version, 14);
    assert.equal((await evaluations.measure(14))?.version, 14);
    assert.deepEqual(emitted, [10, 14]);
  });

  it('a measured version has its own result although another evaluation follows at once', async () => {
    const evaluations = open();
    const first = evaluations.measure(0);
    evaluations.consider(step(10));
    await setImmediate();
    await finish[0]!('success');
    assert.deepEqual([begun, (await first)?.version], [[0, 10], 0]);
  });

  it('the running evaluation is reused if it is of the last version', async () => {
    const evaluations = open();
    evaluations.consider(step(10));
    const last = evaluations.measure(10);
    await finish[0]!('success');
    assert.equal((await last)?.version, 10);
    assert.deepEqual(begun, [10]);
  });

  it('a failed evaluation ends nothing else, and the next one runs when it is due', async () => {
    const evaluations = open();
    evaluations.consider(step(10));
    const result = evaluations.measure(10);
    await finish[0]!('failure');
    assert.equal(await result, undefined);
    evaluations.consider(step(11));
    evaluations.consider(step(20));
    assert.deepEqual([begun, emitted], [[10, 20], []]);
  });

  it('no evaluation begins after the stop signal', async () => {
    const evaluations = open();
    stop.abort();
    assert.equal(await evaluations.measure(3), undefined);
    assert.deepEqual(begun, []);
  });

  it('the last version of a run without further evaluations is not counted, as an alert counts on more', async () => {
    register.resetMetrics();
    const evaluations = open(undefined, 0);
    const last = evaluations.measure(7);
    await finish[0]!('success');
    assert.equal((await last)?.version, 7);
    const exported = await register.getSingleMetric('rl_evaluations_total')!.get();
    assert.deepEqual(exported.values, []);
  });

  it('the steps from one evaluation to the next are exported, since an alert must know when they are due', async () => {
    const exported = async () =>
      (await register.getSingleMetric('rl_eval_every_steps')!.get()).values.map(
        ({ value }) => value,
      );
    open();
    assert.deepEqual(await exported(), [10]);
    open(undefined, 0);
    assert.deepEqual(await exported(), [0]);
  });

  it('a result appears once in metrics.jsonl, and in the exported metrics until the next one', async () => {
    const evaluations = open();
    evaluations.consider(step(10));
    assert.deepEqual(evaluations.takeMetrics(), {});
    await finish[0]!('success');
    const metrics = evaluations.takeMetrics();
    assert.deepEqual(
      [
        metrics['eval/version'],
        metrics['eval/lag'],
        metrics['eval/sampled'],
        metrics['eval/pass@2'],
      ],
      [10, 4, 0.25, 0.5],
    );
    assert.deepEqual(
      [metrics['eval/greedy/3 numbers'], metrics['eval/greedy/4 numbers']],
      [0.5, 0],
    );
    assert.deepEqual(evaluations.takeMetrics(), {});
    const exported = await register.getSingleMetricAsString('rl_eval_score');
    assert.match(exported, /rl_eval_score\{metric="pass@2",difficulty="all"\} 0\.5/);
    assert.match(
      await register.getSingleMetricAsString('rl_eval_lag_steps'),
      /rl_eval_lag_steps 4/,
    );
  });
});

describe('evals.jsonl of a run whose steps a crash has rolled back', () => {
  it('the evaluations of these steps move to evals.undone.jsonl, also once the steps are trained again', async () => {
    const runDir = await mkdtemp(join(tmpdir(), 'offbeat-evals-'));
    const versionsIn = async (name: string) =>
      (await readFile(join(runDir, name), 'utf8').catch(() => ''))
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => (JSON.parse(line) as { version: number }).version);
    /** Opens the evaluations of a session, as after the events of these evaluations. */
    const openAt = async (version: number, evaluated: readonly number[], undone: number[] = []) => {
      await using scope = new TaskScope();
      const evals = evaluated.map((of) => {
        return { v: 1, at: of, kind: 'eval', result: evalResult({ version: of }) } as const;
      });
      const options = {
        settings: { evalProblems: 1, evalSamples: 1, evalEveryVersions: 4 },
        config: runConfig(),
        dataset: { test: [] },
        broker: { clearQueue: () => Promise.resolve() },
        past: { evals, undoneVersions: new Set(undone) },
        ...{ runDir, version, scope, signal: never, log: silent },
      };
      await openEvaluations(options as unknown as OpenEvaluationsOptions);
      return [await versionsIn('evals.jsonl'), await versionsIn('evals.undone.jsonl')];
    };
    assert.deepEqual(await openAt(9, [0, 4, 8]), [[0, 4, 8], []]);
    // The checkpoint is that of step 5, whose weights are published again as version 9.
    assert.deepEqual(await openAt(9, [0, 4], [6, 7, 8]), [[0, 4], [8]]);
    assert.deepEqual(await openAt(15, [0, 4, 12], [6, 7, 8]), [[0, 4, 12], [8]]);
    await rm(runDir, { recursive: true });
  });
});
