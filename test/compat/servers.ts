import assert from 'node:assert/strict';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import type { LossName } from '../../shared/rl/losses.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import { apiKey, modelName, startOn, tinyModel } from '../local-backend/running-backend.js';
import { silent } from '../support/log.js';
import { RecordingProxy } from '../support/recording-proxy.js';
import { apiKey as groundKey, TrainingGround } from '../support/training-ground.js';
import { apart, bounds, trainTwoSteps } from '../support/two-steps.js';
import { readContracts, type Contract } from './servers/contract.js';
import { ContractRules } from './servers/contract-rules.js';
import type { SuiteContext } from './suite.js';

/**
 * Our client and learner against other servers of the Tinker API, each played in front of the local backend by the
 * contract that was recorded from its sources. Each check compares one cell of the table in docs/backends.md.
 */
export async function testServers(context: SuiteContext): Promise<void> {
  await using model = await tinyModel();
  await using backend = await startOn(model.path);
  for (const contract of readContracts()) {
    await checkLosses(context, contract, backend);
    await checkTemperature(context, contract, backend);
    await checkRun(context, contract);
  }
}

/** Each loss is computed by the server, or by another one exactly. */
async function checkLosses(context: SuiteContext, contract: Contract, backend: LocalBackend) {
  for (const [loss, bound] of Object.entries(contract.found.losses) as [LossName, string][]) {
    const own = await withRun(undefined, backend, (run) => trainTwoSteps(run, loss, 1));
    await context.step(`${contract.server}: the loss ${loss}`, bound, () =>
      withRun(contract, backend, async (run) => {
        const carried = await run.probeLosses([loss], bounds);
        const value = carried[loss] ?? 'served';
        assert.equal(value, bound);
        const difference = apart(await trainTwoSteps(run, loss, 1), own);
        assert(difference <= 1e-4, `its logprobs differ from the local backend's by ${difference}`);
        return value;
      }),
    );
  }
}

async function checkTemperature(context: SuiteContext, contract: Contract, backend: LocalBackend) {
  const bound = contract.found.temperature;
  await context.step(`${contract.server}: a temperature of 0.8`, bound, async () => {
    const asked = withRun(contract, backend, (run) =>
      run.probeLosses(['cross_entropy'], { temperature: 0.8 }),
    );
    if (bound === 'served') await asked;
    else await assert.rejects(asked, /temperature 1 only .* Set --temperature 1/);
    return bound;
  });
}

/** A learner and an actor that samples through the server: two steps, and two more after a restart. */
async function checkRun(context: SuiteContext, contract: Contract): Promise<void> {
  const { server, found } = contract;
  await using ground = await TrainingGround.prepare('servers');
  const rules = new ContractRules(contract, { url: ground.backendUrl, apiKey: groundKey });
  await using proxy = await RecordingProxy.before(ground.backendUrl, undefined, {}, rules);
  const where = { 'backend-url': proxy.url, 'checkpoint-every-steps': 1 };
  const learner = ground.learner({ ...where, 'max-steps': 2 });
  ground.actor(
    'actor-0',
    ...['--sampler', 'tinker', '--backend-url', proxy.url, '--api-key', groundKey],
  );
  await ground.startScoring();

  await context.step(`${server}: a run of two steps`, found.run, async () => {
    const { loss, adapters } = await learner.says(({ msg }) => msg === 'what the backend offers');
    assert.equal(loss, found.run);
    assert.equal(adapters, found.adapters);
    assert.equal(await learner.exitCode(), 0, learner.errors + learner.tail);
    assert.equal((await ground.metrics()).length, 2);
    return found.run;
  });
  await context.step(`${server}: resumed for two more`, String(found.resumed), async () => {
    const second = ground.learner({ ...where, 'max-steps': 4 });
    const { step } = await second.says(({ msg }) => msg === 'resuming from the last checkpoint');
    assert.equal(step, 2);
    assert.equal(await second.exitCode(), 0, second.errors + second.tail);
    assert.deepEqual(
      (await ground.metrics()).map((line) => line['step']),
      [1, 2, 3, 4],
    );
    return 'true';
  });
}

/** A new run at the server of a contract, or at the local backend itself. */
async function withRun<T>(
  contract: Contract | undefined,
  backend: LocalBackend,
  act: (run: TrainingRun) => Promise<T>,
): Promise<T> {
  const rules = contract && new ContractRules(contract, { url: backend.url, apiKey });
  await using proxy = await RecordingProxy.before(backend.url, undefined, {}, rules);
  await using client = await TinkerClient.connect({
    baseUrl: proxy.url,
    apiKey,
    log: silent,
    signal: new AbortController().signal,
    sleep: () => Promise.resolve(),
  });
  return await act(await client.createLoraModel({ baseModel: modelName, rank: 4, seed: 3 }));
}
