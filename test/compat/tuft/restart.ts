import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { AdapterOutOfReach, BadRequest, RunLost } from '../../../shared/tinker/errors.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { until } from '../../support/waiting.js';
import type { SuiteContext } from '../suite.js';
import { Proxy } from './proxy.js';
import { adam, baseModel, connect, datum, distance, failure, look, lora, step } from './scene.js';
import { TuftServer } from './tuft-server.js';

/** Restarts TuFT in the middle of work with its own persistence, and reads its archives. */
export async function tuftRestart(context: SuiteContext): Promise<void> {
  const server = await TuftServer.start(context, [
    ...[`--model-dir=${embeddedModelPath}`, `--model-name=${baseModel}`],
    '--archive=file',
    '--log-level=info',
  ]);
  await using _server = server;
  const check = context.step;

  await using client = await connect(context, server.url);
  const run = await client.createLoraModel(lora);
  await step(run);
  const statePath = await run.saveState('state');
  const atState = await look(run);

  await check('a sampling session where nothing samples', 'BadRequest', async () => {
    const saved = await run.saveWeightsForSampler('sampler');
    return failure(client.createSamplingSession(saved), BadRequest, /400.*capabilit/i);
  });
  await check('stock archive on a shared disk', 'rank 8', async () => {
    const path = `tinker://${run.modelId}/sampler_weights/sampler`;
    const { rank, alpha } = await client.downloadAdapter(path);
    assert.deepEqual([rank, alpha], [8, 16]);
    return `rank ${rank}`;
  });
  await check('stock archive, mounted under another path', 'rank 8', async () => {
    const path = `tinker://${run.modelId}/sampler_weights/sampler`;
    const mount = join(context.folder, 'mount');
    await rename(server.checkpointDir, mount);
    try {
      await failure(
        client.downloadAdapter(path),
        AdapterOutOfReach,
        /Mount the server's folder of checkpoints/,
      );
      await using mounted = await connect(context, server.url, { checkpointDir: mount });
      return `rank ${(await mounted.downloadAdapter(path)).rank}`;
    } finally {
      await rename(mount, server.checkpointDir);
    }
  });

  const old = await server.submit('optim_step', {
    adam_params: { learning_rate: 0 },
    model_id: run.modelId,
    seq_id: 0,
  });
  assert.equal((await server.settle(old)).status, 409);

  await check('SIGTERM during a pass: exit code', '0', async () => {
    await step(run);
    const behind = [run.forwardBackward(longData(), 'cross_entropy', {}), run.optimStep(adam)];
    await hasBegun(server, run);
    const code = await server.stop('SIGTERM');
    for (const each of behind) await failure(each, RunLost);
    assert.equal(code, 0);
    return code;
  });
  await check('the run, started from its saved state', '0 from where it was', async () => {
    await server.start();
    const restored = await client.restoreLoraModel({ ...lora, statePath });
    const apart = distance(atState.logprobs, (await look(restored)).logprobs);
    assert.equal(apart, 0);
    await step(restored);
    return apart;
  });
  await check('410: a promise from before', '410', async () => {
    const { status } = await server.settle(old);
    assert.equal(status, 410);
    return status;
  });

  // If no request is pending when the server ends, TuFT continues with older weights silently.
  await check('SIGKILL while no operation runs', 'RunLost', async () => {
    const quiet = await client.restoreLoraModel({ ...lora, statePath });
    await step(quiet);
    await server.stop('SIGKILL');
    const asked = quiet.info(); // like the heartbeat, it gets no answer and retries
    await server.start();
    await asked;
    return failure(look(quiet), RunLost, /its server ended/);
  });
  if (context.isShort) return;
  await check('SIGKILL behind a proxy: the poll goes on, and is answered', '410', async () => {
    await using proxy = await Proxy.start(server.url);
    await using behind = await connect(context, proxy.url);
    const kept = await behind.restoreLoraModel({ ...lora, statePath });
    const pending = kept.forwardBackward(longData(), 'cross_entropy', {});
    await hasBegun(server, kept);
    await until(() => proxy.answered.includes('POST /api/v1/forward_backward 202'));
    await server.stop('SIGKILL');
    await server.start();
    await failure(pending, RunLost, /answered 410/);
    return 410;
  });
}

/** A pass of seconds. */
function longData(): Datum[] {
  const tokens = Array.from({ length: 60 }, (_, i) => 2 + (i % 20));
  return Array.from({ length: 600 }, () => datum(tokens, 'cross_entropy'));
}

/** Waits until the server has logged that the next pass of the run begins. */
async function hasBegun(server: TuftServer, { modelId }: TrainingRun): Promise<void> {
  const count = () => server.output.split(`Forward/backward begin for ${modelId}`).length;
  const before = count();
  await until(() => count() > before);
}
