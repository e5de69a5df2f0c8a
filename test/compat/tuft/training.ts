import assert from 'node:assert/strict';
import { Summary } from '../../../deploy/local/summary.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { UpProcess } from '../../support/up-process.js';
import { atLeast, type SuiteContext } from '../suite.js';
import { baseModel } from './scene.js';
import { apiKey, TuftServer } from './tuft-server.js';

/** Small steps, to see that everything meets. */
const smoke =
  '--max-steps=4 --groups-per-batch=8 --num-minibatches=2 --eval-problems=16 --eval-samples=1';

/** The default steps of 1,024 rollouts, until the policy is visibly better. */
const real = '--max-minutes=5 --eval-problems=512 --eval-every-versions=0';

/** `npm start` with TuFT as its backend: actors sample by themselves with the adapters that it trains. */
export async function tuftTraining(context: SuiteContext): Promise<void> {
  await using server = await TuftServer.start(context, [
    ...[`--model-dir=${embeddedModelPath}`, `--model-name=${baseModel}`],
    '--micro-batch-size=64',
  ]);
  await using up = await UpProcess.start([
    ...[`--backend-url=${server.url}`, `--api-key=${apiKey}`, `--model-dir=${embeddedModelPath}`],
    ...(context.isShort ? smoke : real).split(' '),
    ...['--sampler=onnx', '--json'],
  ]);
  context.signal.addEventListener('abort', () => up.child.kill('SIGTERM'));
  const check = context.step;

  await check('npm start --backend-url: exit code', '0', async () => {
    const code = await up.ended();
    assert.equal(code, 0, up.err);
    return 0;
  });
  const summary = Summary.parse(JSON.parse(up.out.trimEnd().split('\n').at(-1)!));
  const { steps, version, groups } = summary;
  context.report(atLeast('optimizer steps', steps, context.isShort ? 4 : 5));
  await check(
    'adapters that actors fetched and sampled with',
    'the newest among them',
    async () => {
      const adopted = new Set<number>();
      for (const actor of ['actor-0', 'actor-1']) {
        const lines = (await up.read(`logs/${actor}.log`)).split('\n');
        for (const line of lines.filter((text) => text.includes('"policy adopted"'))) {
          adopted.add((JSON.parse(line) as { version: number }).version);
        }
      }
      assert(adopted.size > 2 && Math.max(...adopted) >= version - 1, [...adopted].join());
      return `${adopted.size} of ${version + 1} versions`;
    },
  );
  await check('groups', 'all accounted for', () => {
    const { issued, trained, skippedZeroVariance, stale, dead, outstanding } = groups;
    assert.equal(issued, trained + skippedZeroVariance + stale + dead + outstanding);
    assert.equal(dead, 0);
    return `${trained} of ${issued} trained`;
  });
  const { before, after } = summary.eval!;
  const gain = after!.sampled - before!.sampled;
  const shown = (share: number) => `${(100 * share).toFixed(1)} %`;
  context.note(
    `  held out ${shown(before!.sampled)} → ${shown(after!.sampled)}, ${summary.rolloutsPerSecond.toFixed(0)} rollouts/s, ` +
      `${((summary.wallSeconds / steps) * (1 - summary.learnerIdleFraction)).toFixed(1)} s of TuFT a step`,
  );
  if (!context.isShort) {
    context.report(atLeast(`held-out problems solved, ${shown(before!.sampled)} and`, gain, 0.03));
  }
}
