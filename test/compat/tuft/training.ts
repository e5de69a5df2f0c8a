import assert from 'node:assert/strict';
import { Summary } from '../../../cli/up/summary.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { UpProcess } from '../../support/up-process.js';
import { until } from '../../support/waiting.js';
import { atLeast, type SuiteContext } from '../suite.js';
import { baseModel } from './scene.js';
import { apiKey, TuftServer } from './tuft-server.js';

/** Small steps, to check that all parts work together. */
const small =
  '--max-steps=6 --checkpoint-every-steps=2 --groups-per-batch=8 --num-minibatches=2 --eval-problems=16 --eval-samples=1';

/** Steps of 1,024 rollouts, as for a large model, until the policy is clearly better. */
const real = '--max-minutes=5 --groups-per-batch=64 --eval-problems=512 --eval-every-versions=0';

/** `npm start` with TuFT as its backend: actors sample in their own processes with the adapters that TuFT trains. */
export async function tuftTraining(context: SuiteContext): Promise<void> {
  await using server = await TuftServer.start(context, [
    ...[`--model-dir=${embeddedModelPath}`, `--model-name=${baseModel}`],
    '--micro-batch-size=64',
  ]);
  await survives(context, server);
  if (!context.isShort) await improves(context, server);
}

async function survives(context: SuiteContext, server: TuftServer): Promise<void> {
  await using up = await startUp(context, server, small);
  const check = context.step;
  await check('TuFT is killed after three steps and comes back: exit code', '0', async () => {
    await until(async () => (await stepsOf(up)) >= 3 || up.child.exitCode !== null);
    await server.stop('SIGKILL');
    await server.start();
    assert.equal(await up.ended(), 0, up.err);
    return 0;
  });
  const summary = summaryOf(up);
  await check('steps', '6', () => {
    assert.equal(summary.steps, 6);
    return summary.steps;
  });
  await check('the learner', 'restored its run', async () => {
    const log = await up.read('logs/learner.log');
    const lines = log.split('\n').filter((line) => line.includes('restoring the run'));
    assert(lines.length > 0, log);
    return `restored ${lines.length === 1 ? 'once' : `${lines.length} times`}`;
  });
  await check('adapters that actors fetched', 'of the newest versions, too', async () => {
    const versions = await adoptedBy(up, ['actor-0', 'actor-1']);
    assert(Math.max(...versions) >= summary.version - 1, [...versions].join());
    return `of ${versions.size} versions`;
  });
  await check('groups', 'all accounted for', async () => {
    const { issued, trained, skippedZeroVariance, stale, dead, outstanding } = summary.groups;
    assert.equal(issued, trained + skippedZeroVariance + stale + dead + outstanding);
    const log = await up.read('logs/learner.log');
    assert.equal(
      dead,
      0,
      log
        .split('\n')
        .filter((line) => line.includes('"level":40'))
        .join('\n'),
    );
    return `${trained} of ${issued} trained`;
  });
}

async function improves(context: SuiteContext, server: TuftServer): Promise<void> {
  await using up = await startUp(context, server, real);
  assert.equal(await up.ended(), 0, up.err);
  const { eval: evaluation, steps, rolloutsPerSecond } = summaryOf(up);
  const [before, after] = [evaluation!.before!.sampled, evaluation!.after!.sampled];
  const shown = (share: number) => `${(100 * share).toFixed(1)} %`;
  context.report(
    atLeast(`held out, ${shown(before)} → ${shown(after)}: gain`, after - before, 0.03),
  );
  const lines = (await up.read('metrics.jsonl')).trimEnd().split('\n');
  const busy = lines.map((line) => {
    const { seconds, idle_seconds: idle } = JSON.parse(line) as Record<string, number>;
    return seconds! - idle!;
  });
  const perStep = busy.reduce((sum, each) => sum + each, 0) / steps;
  context.note(
    `  ${steps} steps, ${rolloutsPerSecond.toFixed(0)} rollouts/s, TuFT busy ${perStep.toFixed(1)} s a step`,
  );
}

async function startUp(
  context: SuiteContext,
  server: TuftServer,
  flags: string,
): Promise<UpProcess> {
  const where = [`--backend-url=${server.url}`, `--api-key=${apiKey}`];
  const up = await UpProcess.start([
    ...[...where, `--model-dir=${embeddedModelPath}`, '--sampler=onnx', '--json'],
    ...flags.split(' '),
  ]);
  context.signal.addEventListener('abort', () => up.child.kill('SIGTERM'));
  return up;
}

/** The number of confirmed steps so far; a step that a restored learner repeats counts once. */
async function stepsOf(up: UpProcess): Promise<number> {
  const text = await up.read('metrics.jsonl').catch(() => '');
  return text.split('\n').length - 1;
}

function summaryOf(up: UpProcess): Summary {
  return Summary.parse(JSON.parse(up.out.trimEnd().split('\n').at(-1)!));
}

async function adoptedBy(up: UpProcess, actors: readonly string[]): Promise<Set<number>> {
  const versions = new Set<number>();
  for (const actor of actors) {
    const lines = (await up.read(`logs/${actor}.log`)).split('\n');
    for (const line of lines.filter((text) => text.includes('"policy adopted"'))) {
      versions.add((JSON.parse(line) as { version: number }).version);
    }
  }
  return versions;
}
