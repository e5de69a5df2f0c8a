import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { UserError } from '../../../shared/base/errors.js';
import { decodeAdapter } from '../../../shared/model/lora.js';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import { AccessRefused, BadRequest, RunLost } from '../../../shared/tinker/errors.js';
import { parseTinkerPath } from '../../../shared/tinker/tinker-path.js';
import type { SuiteContext } from '../suite.js';
import {
  adam,
  baseModel,
  connect,
  datum,
  distance,
  failure,
  look,
  lora,
  losses,
  lossNames,
  lossOf,
  pair,
  step,
} from './scene.js';
import { TuftServer } from './tuft-server.js';

/** Makes every Tinker call of this project to TuFT with our own client. */
export async function tuftCalls(context: SuiteContext): Promise<void> {
  await using server = await TuftServer.start(context, [
    ...[`--model-dir=${embeddedModelPath}`, `--model-name=${baseModel}`],
    '--sampling',
  ]);
  await using client = await connect(context, server.url);
  const check = context.step;

  await check('connect: the model and what it can do', baseModel, () => {
    const [model] = client.models;
    assert.deepEqual(model?.capabilities, ['training', 'sampling']);
    assert.equal(model.maxContextLength, 64);
    return model.name;
  });
  await check('connect with another key', 'AccessRefused', () =>
    failure(
      connect(context, server.url, { apiKey: 'tml-wrong' }),
      AccessRefused,
      /Invalid API key/,
    ),
  );
  await check('create_model of a model that is not served', 'UserError', () =>
    failure(client.createLoraModel({ ...lora, baseModel: 'none' }), UserError, /offbeat\/base/),
  );

  const run = await client.createLoraModel(lora);
  await check('get_info', 'rank 8', async () => {
    const info = await run.info();
    assert.deepEqual(info, { baseModel, loraRank: 8, tokenizerId: baseModel });
    return `rank ${info.loraRank}`;
  });
  for (const loss of lossNames) {
    await check(`${loss}: three pipelined steps, loss`, 'falls', async () => {
      const trained = await client.createLoraModel(lora);
      // cispo follows the gradient of importance_sampling; its own value has no meaning.
      const judge = loss === 'cispo' ? 'importance_sampling' : loss;
      const judged = () => trained.forward(pair(loss), judge, losses[judge]).then(lossOf);
      const before = judged();
      await Promise.all([1, 2, 3].map(() => step(trained, loss)));
      const after = await judged();
      assert(after < (await before), `${await before} → ${after}`);
      return `${(await before).toFixed(2)} → ${after.toFixed(2)}`;
    });
  }

  await check('forward leaves no gradient behind', '0', async () => {
    const before = await look(run);
    await run.optimStep(adam);
    return distance(before.logprobs, (await look(run)).logprobs);
  });
  await check('1,100 datums in two requests, loss', 'the sum of its parts', async () => {
    const data = Array.from({ length: 1_100 }, (_, i) =>
      datum([2 + (i % 20), 3, 4], 'cross_entropy'),
    );
    const whole = await run.forward(data, 'cross_entropy', {});
    assert.equal(whole.logprobs.length, 1_100);
    const parts = [data.slice(0, 500), data.slice(500)].map((part) =>
      run.forward(part, 'cross_entropy', {}).then(lossOf),
    );
    const sum = (await Promise.all(parts)).reduce((left, right) => left + right);
    assert(Math.abs(lossOf(whole) - sum) < 1e-5 * sum, `${lossOf(whole)} and ${sum}`);
    return sum;
  });

  let statePath = '';
  await check('save_weights, load_weights with optimizer: next step', '≤ 1e-6 apart', async () => {
    await step(run);
    statePath = await run.saveState('state-1');
    const restored = await client.restoreLoraModel({ ...lora, statePath });
    for (const each of [run, restored]) await step(each);
    const apart = distance((await look(run)).logprobs, (await look(restored)).logprobs);
    assert(apart <= 1e-6, String(apart));
    return apart;
  });
  await check('load_weights without optimizer: next step', '> 1e-3 apart', async () => {
    const fresh = await client.createLoraModel(lora);
    await fresh.loadState(statePath, { optimizer: false });
    await step(fresh);
    const apart = distance((await look(run)).logprobs, (await look(fresh)).logprobs);
    assert(apart > 1e-3, String(apart));
    return apart;
  });
  await check('load_weights of what is not there', 'BadRequest', () =>
    failure(run.loadState(statePath.replace('state-1', 'none'), { optimizer: true }), BadRequest),
  );

  const samplerPath = await run.saveWeightsForSampler('sampler-1');
  await check('archive, download: adapter', 'the file on the server', async () => {
    const { adapter, rank, alpha } = await client.downloadAdapter(samplerPath);
    const { runId, name } = parseTinkerPath(samplerPath);
    const folder = join(server.checkpointDir, runId, name, 'adapter');
    assert.deepEqual(
      Buffer.from(adapter),
      await readFile(join(folder, 'adapter_model.safetensors')),
    );
    assert.deepEqual([rank, alpha], [8, 16]);
    return `${decodeAdapter(adapter, { rank, alpha }).tensors.size} matrices`;
  });
  await check('archive of what is not there', 'BadRequest', () =>
    failure(
      client.downloadAdapter(samplerPath.replace('sampler-1', 'none')),
      BadRequest,
      /not found/,
    ),
  );

  const sampler = client.sampler(await client.createSamplingSession(samplerPath));
  for (const temperature of [1, 0.7]) {
    await check(
      `asample at temperature ${temperature}: logprobs`,
      "≤ 1e-4 from the trainer's",
      async () => {
        const prompt = Int32Array.of(3, 4, 5);
        const settings = { prompt, numSamples: 3, maxTokens: 12, temperature, seed: 1 };
        const samples = await sampler.sample(settings);
        assert.deepEqual(await sampler.sample(settings), samples, 'the seed does not decide');
        let largest = 0;
        for (const { tokens, logprobs } of samples) {
          const scored = datum([...prompt, ...tokens], 'cross_entropy');
          const { logprobs: found } = await run.forward([scored], 'cross_entropy', { temperature });
          largest = Math.max(largest, distance([logprobs], [found[0]!.subarray(2)]));
        }
        assert(largest <= 1e-4, String(largest));
        return largest;
      },
    );
  }
  await check('asample: greedy, until a stop token', 'stop', async () => {
    const greedy = { prompt: Int32Array.of(3, 4), numSamples: 1, temperature: 0 };
    const [long] = await sampler.sample({ ...greedy, maxTokens: 6 });
    const [last] = long!.tokens.slice(-1);
    const [cut] = await sampler.sample({ ...greedy, maxTokens: 60, stop: [last!] });
    assert.equal(cut!.tokens.at(-1), last);
    assert.equal(cut!.tokens.indexOf(last!), cut!.tokens.length - 1);
    return cut!.stopReason;
  });
  await check('prompt logprobs', "≤ 1e-4 from the trainer's", async () => {
    const tokens = [3, 4, 5, 6, 7, 8];
    const { logprobs } = await run.forward([datum(tokens, 'cross_entropy')], 'cross_entropy', {});
    const found = await sampler.logprobs(Int32Array.from(tokens));
    assert(Number.isNaN(found[0]));
    const apart = distance(logprobs, [found.subarray(1)]);
    assert(apart <= 1e-4, String(apart));
    return apart;
  });
  await check('asample on a session that is not there', 'RunLost', () =>
    failure(client.sampler('none').logprobs(Int32Array.of(3)), RunLost),
  );

  await check('checkpoints: listed', 'both kinds', async () => {
    const found = await client.listCheckpoints(run.modelId);
    assert(found.every(({ bytes }) => bytes! > 0));
    return found
      .map(({ kind }) => kind)
      .sort()
      .join(', ');
  });
  await check('checkpoints: deleted, twice', 'gone', async () => {
    await client.deleteCheckpoint(samplerPath);
    await client.deleteCheckpoint(samplerPath);
    await failure(client.downloadAdapter(samplerPath), BadRequest);
    const left = await client.listCheckpoints(run.modelId);
    assert.deepEqual(
      left.map(({ path }) => path),
      [statePath],
    );
    return 'gone';
  });
  await check('after all this, a step still trains', 'falls', async () => {
    const before = lossOf(await look(run));
    await step(run);
    const after = lossOf(await look(run));
    assert(after < before);
    return `${before.toFixed(2)} → ${after.toFixed(2)}`;
  });
}
