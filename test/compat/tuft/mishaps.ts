import assert from 'node:assert/strict';
import { embeddedModelPath } from '../../../shared/model/model-directory.js';
import type { TinkerClient } from '../../../shared/tinker/client.js';
import { BadRequest, SequenceConflict, Unavailable } from '../../../shared/tinker/errors.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import { until } from '../../support/waiting.js';
import type { SuiteContext } from '../suite.js';
import { Proxy } from './proxy.js';
import {
  adam,
  baseModel,
  connect,
  datum,
  distance,
  failure,
  look,
  lora,
  lossOf,
  pair,
  step,
} from './scene.js';
import { TuftServer } from './tuft-server.js';

/**
 * Faults between a client and TuFT. Failures of operations and conflicts are TuFT's own; the
 * network's are made by a proxy between the two. So is 429, which TuFT gives only for FSDP's slots.
 */
export async function tuftMishaps(context: SuiteContext): Promise<void> {
  await using server = await TuftServer.start(context, [
    ...[`--model-dir=${embeddedModelPath}`, `--model-name=${baseModel}`],
    '--poll-seconds=0.2',
  ]);
  await using proxy = await Proxy.start(server.url);
  await using client = await connect(context, proxy.url);
  await network(context, proxy, client);
  await refusals(context, server, client);

  await context.step('session_heartbeat', 'answered', async () => {
    const beat = 'POST /api/v1/session_heartbeat 200';
    await until(() => proxy.answered.includes(beat));
    return beat;
  });
}

async function network(context: SuiteContext, proxy: Proxy, client: TinkerClient): Promise<void> {
  const check = context.step;
  const smooth = await client.createLoraModel(lora);
  const statePath = await smooth.saveState('fresh');
  const expected = await train(smooth);

  /** Trains as `smooth` did, and names what differs. */
  const same = async (): Promise<string> => {
    const run = await client.restoreLoraModel({ ...lora, statePath });
    const found = await train(run);
    assert.deepEqual(found, expected);
    assert(proxy.isDone, 'not everything that was planned went wrong');
    return 'the same numbers';
  };
  await check('nothing goes wrong', 'the same numbers', same);
  for (const path of ['/forward_backward', '/optim_step', '/retrieve_future']) {
    await check(`the answer of ${path} is lost`, 'the same numbers', () => {
      proxy.plan(path, { kind: 'answer lost' });
      return same();
    });
    await check(`the request ${path} is lost`, 'the same numbers', () => {
      proxy.plan(path, { kind: 'request lost' });
      return same();
    });
    for (const status of [429, 503]) {
      await check(`${path} is answered ${status} (by the proxy)`, 'the same numbers', () => {
        proxy.plan(path, { kind: 'refused', status, headers: { 'retry-after': '1' } });
        return same();
      });
    }
  }
  await check('answers are lost again and again', 'the same numbers', () => {
    for (const path of ['/forward_backward', '/optim_step', '/retrieve_future']) {
      for (let i = 0; i < 3; i++) proxy.plan(path, { kind: 'answer lost' });
    }
    return same();
  });
  for (const path of [
    '/save_weights',
    '/load_weights',
    '/save_weights_for_sampler',
    '/create_model',
  ]) {
    await check(`the answer of ${path} is lost`, 'saved and loaded', async () => {
      proxy.plan(path, { kind: 'answer lost' });
      const run = await client.createLoraModel(lora);
      await step(run);
      const saved = await run.saveState('s');
      await run.saveWeightsForSampler('w');
      const before = await look(run);
      await step(run);
      await run.loadState(saved, { optimizer: true });
      assert.equal(distance(before.logprobs, (await look(run)).logprobs), 0);
      assert(proxy.isDone);
      return 'saved and loaded';
    });
  }
  await check('an operation longer than a poll is held', 'several polls', async () => {
    const polls = () => proxy.answered.filter((line) => line.includes('retrieve_future')).length;
    const before = polls();
    const long = Array.from({ length: 400 }, () =>
      datum(
        Array.from({ length: 60 }, (_, i) => 2 + (i % 20)),
        'cross_entropy',
      ),
    );
    lossOf(await smooth.forward(long, 'cross_entropy', {}));
    assert(polls() - before > 1);
    return `${polls() - before} polls`;
  });
  if (context.isShort) return;
  await check('an answer that comes too late (60 s)', 'the same numbers', () => {
    const tooLate = new Promise<void>((resolve) => setTimeout(resolve, 65_000).unref());
    proxy.plan('/optim_step', { kind: 'answer late', until: tooLate });
    return same();
  });
}

async function refusals(
  context: SuiteContext,
  server: TuftServer,
  client: TinkerClient,
): Promise<void> {
  const check = context.step;
  const run = await client.createLoraModel(lora);
  const unknownToken = [datum([3, 99_999, 5], 'cross_entropy')];

  await check('422: an operation fails at its turn', 'Unavailable', () =>
    failure(
      run.forwardBackward(unknownToken, 'cross_entropy', {}),
      Unavailable,
      /422: Future failed/,
    ),
  );
  await check('after it, the next step', 'trains', async () => {
    const before = lossOf(await look(run));
    await step(run);
    const after = lossOf(await look(run));
    assert(after < before);
    return `${before.toFixed(2)} → ${after.toFixed(2)}`;
  });
  await check('a step sent behind a failed pass, then another step', 'trains', async () => {
    // Since 0.2.1 TuFT accepts operations after a failed one; before, it refused them.
    const [failed] = await Promise.allSettled([
      run.forwardBackward(unknownToken, 'cross_entropy', {}),
      run.optimStep(adam),
    ]);
    assert.equal(failed.status, 'rejected');
    const before = lossOf(await look(run));
    await step(run);
    const after = lossOf(await look(run));
    assert(after < before);
    return `${before.toFixed(2)} → ${after.toFixed(2)}`;
  });
  await check('422: a loss that is none, at the door', 'BadRequest', () =>
    failure(run.forwardBackward(pair('ppo'), 'none' as 'ppo', {}), BadRequest, /Invalid protobuf/),
  );
  await check('409: another client trains the same run', 'SequenceConflict', async () => {
    const spend = (seq_id: number) =>
      server
        .submit('optim_step', { adam_params: { learning_rate: 0 }, model_id: run.modelId, seq_id })
        .then((requestId) => server.settle(requestId));
    const [, expected] = /expected (\d+), got 0/.exec((await spend(0)).text) ?? [];
    assert.equal((await spend(Number(expected))).status, 200);
    const name = await failure(run.optimStep(adam), SequenceConflict, /expected \d+, got \d+/);
    await step(run); // the id was found again
    return name;
  });
  await check('415: JSON where TuFT wants protobuf', '415', async () => {
    const { status } = await server.send('forward_backward', {});
    assert.equal(status, 415);
    return status;
  });
  await check('404: an unknown promise', '404', async () => {
    const { status } = await server.settle('none');
    assert.equal(status, 404);
    return status;
  });
}

/** Two steps, pipelined: their logprobs and losses, and the loss in the end. */
async function train(run: TrainingRun): Promise<unknown> {
  const steps = await Promise.all([step(run), step(run)]);
  return [...steps.map((each) => [lossOf(each), each.logprobs]), lossOf(await look(run))];
}
