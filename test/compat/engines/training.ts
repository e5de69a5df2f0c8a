import assert from 'node:assert/strict';
import { engineFindings } from '../../../cli/doctor/engine.js';
import { Summary } from '../../../cli/up/summary.js';
import { UserError } from '../../../shared/base/errors.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { UpProcess } from '../../support/up-process.js';
import { until } from '../../support/waiting.js';
import { atMost, type SuiteContext } from '../suite.js';
import type { EngineProcess } from './engine-process.js';
import { engineExactness } from './exactness.js';
import { sglangPython, startSglang } from './sglang.js';
import { startVllm, vllmPython } from './vllm.js';

const flags =
  '--max-steps=6 --num-minibatches=2 --eval-problems=16 --eval-samples=1 --ready-seconds=600 --json --no-dashboard';

/** A real vLLM on the CPU. */
export async function testVllm(context: SuiteContext): Promise<void> {
  if (context.isShort) throw new UserError('vLLM takes minutes to install and to start');
  await using server = await startVllm(await vllmPython(context), context.signal);
  await testEngine(context, server, { kind: 'vllm', groups: 8 });
}

/** A real SGLang on the CPU, which is several times slower there. */
export async function testSglang(context: SuiteContext): Promise<void> {
  if (context.isShort) throw new UserError('SGLang takes minutes to install and to start');
  await using server = await startSglang(await sglangPython(context), context.signal);
  await testEngine(context, server, { kind: 'sglang', groups: 2 });
}

/** Its logprobs, and `npm start` across its death. */
async function testEngine(
  context: SuiteContext,
  server: EngineProcess,
  { kind, groups }: { readonly kind: 'vllm' | 'sglang'; readonly groups: number },
): Promise<void> {
  await context.step('the doctor', 'finds nothing missing', async () => {
    const { signal } = context;
    const found = await engineFindings({ urls: [server.url], apiKey: undefined, signal });
    const bad = found.filter(({ level, check }) => level !== 'ok' && check !== 'engine-slots');
    assert.deepEqual(bad, []); // its slots it says after the first call with an adapter
    return found.map((each) => each.found).join('; ');
  });
  await engineExactness(context, { kind, url: server.url });

  const where = [`--model-dir=${embeddedModelPath}`, `--engine-url=${server.url}`];
  const own = [`--sampler=${kind}`, `--groups-per-batch=${groups}`];
  await using up = await UpProcess.start([...flags.split(' '), ...own, ...where]);
  context.signal.addEventListener('abort', () => up.child.kill('SIGTERM'));
  const steps = async () => (await up.read('metrics.jsonl').catch(() => '')).split('\n').length - 1;
  await context.step(
    'the engine is killed after two steps and comes back: exit code',
    '0',
    async () => {
      await until(async () => (await steps()) >= 2 || up.child.exitCode !== null);
      await server.kill();
      await server.start();
      assert.equal(await up.ended(), 0, up.err);
      return 0;
    },
  );
  const summary = Summary.parse(JSON.parse(up.out.trimEnd().split('\n').at(-1)!));
  await context.step('steps, and groups that died', '6, none', () => {
    assert.deepEqual([summary.steps, summary.groups.dead], [6, 0]);
    return `${summary.groups.trained} of ${summary.groups.issued} groups trained`;
  });
  await context.step('the actor', 'used it again with its adapters', async () => {
    const log = await up.read('logs/actor-0.log');
    assert.match(log, /engine is out of use/);
    assert.match(log, /engine is in use again/);
    assert.doesNotMatch(log, /does not show all metrics/);
    return 'out of use, then in use again';
  });
  const lines = (await up.read('metrics.jsonl')).trimEnd().split('\n');
  const distances = lines.flatMap((line) => {
    const metrics = JSON.parse(line) as Record<string, number | undefined>;
    return Math.abs(metrics['kl_sample_train_v1/staleness_0'] ?? 0);
  });
  context.report(
    atMost(
      'KL from sampler to learner at staleness 0, largest of a step',
      Math.max(...distances),
      1e-5,
    ),
  );
}
