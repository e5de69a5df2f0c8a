import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { UserError } from '../../shared/base/errors.js';
import {
  createModelBody,
  forwardBackward,
  startOn,
  tinyModel,
  Wire,
} from '../local-backend/running-backend.js';
import { recordingLog } from '../support/log.js';
import { until } from '../support/waiting.js';

describe('a restarted local backend', () => {
  it('a restarted local backend finds the earlier checkpoints and reports that the rest is lost', async () => {
    await using directory = await tinyModel();
    let model: string, sampled: unknown, continued: unknown, promise: Record<string, unknown>;
    {
      await using backend = await startOn(directory.path);
      const wire = new Wire(backend.url);
      const session = await wire.createSession();
      model = await wire.createModel(session);
      await wire.sendForwardBackward(forwardBackward(model, 1));
      await wire.optimStep(model, 2);
      const save = { model_id: model, path: 'last' };
      await wire.result(await wire.post('save_weights', { ...save, seq_id: 3 }));
      promise = await wire.post('save_weights_for_sampler', { ...save, seq_id: 4 });
      await wire.result(promise);
      continued = await wire.evaluation(await wire.sendForwardBackward(forwardBackward(model, 5)));
      sampled = await sample(wire, session, model);
    }

    await using backend = await startOn(directory.path);
    const wire = new Wire(backend.url);
    assert.equal((await wire.tryPost('retrieve_future', promise)).status, 410);
    assert.equal((await wire.tryPost('get_info', { model_id: model })).status, 404);
    const run = await wire.get(`training_runs/${model}`);
    assert.equal(run['lora_rank'], 4);
    const { checkpoints } = await wire.get('checkpoints');
    assert.equal((checkpoints as unknown[]).length, 2);

    const session = await wire.createSession();
    assert.deepEqual(await sample(wire, session, model), sampled);
    const heir = await wire.createModel(session);
    const load = { path: `tinker://${model}/weights/last`, optimizer: true };
    await wire.result(await wire.post('load_weights', { model_id: heir, seq_id: 1, ...load }));
    assert.deepEqual(
      await wire.evaluation(await wire.sendForwardBackward(forwardBackward(heir, 2))),
      continued,
    );
  });

  it('an adapter that is made from saved weights has their alpha, whatever the server gives new ones', async () => {
    await using directory = await tinyModel();
    let path: unknown;
    {
      await using backend = await startOn(directory.path, { loraAlpha: 3 });
      const wire = new Wire(backend.url);
      const model = await wire.createModel(await wire.createSession());
      const state = { model_id: model, path: 'state', seq_id: 1 };
      ({ path } = await wire.result(await wire.post('save_weights', state)));
    }
    await using backend = await startOn(directory.path, { loraAlpha: 5 });
    const wire = new Wire(backend.url);
    const from = { session_id: await wire.createSession(), model_seq_id: 0, path, optimizer: true };
    const loaded = await wire.post('load_weights', from);
    assert.deepEqual(await wire.result(loaded), {
      path,
      model_id: loaded['model_id'],
      type: 'load_weights',
    });
  });

  it('a sampler whose model could not be read reads it again for the next request', async () => {
    await using directory = await tinyModel();
    await using backend = await startOn(directory.path);
    const wire = new Wire(backend.url);
    const session = await wire.createSession();
    const model = await wire.createModel(session);
    const save = { model_id: model, path: 'last', seq_id: 1 };
    await wire.result(await wire.post('save_weights_for_sampler', save));
    const config = join(directory.path, 'config.json');
    await rename(config, `${config}.away`);
    const { error } = await wire.result(await askedSample(wire, session, model, 0));
    assert.match(String(error), /config\.json/);
    await rename(`${config}.away`, config);
    await wire.samples(await askedSample(wire, session, model, 1));
  });

  it('a sampler refuses a model that was written over after the server started, until it is put back', async () => {
    await using directory = await tinyModel();
    await using other = await tinyModel(1);
    await using backend = await startOn(directory.path);
    const wire = new Wire(backend.url);
    const session = await wire.createSession();
    const whole = await wire.createModel(session);
    const lora_config = { rank: 4, train_mlp: false }; // the sampler reads the weights again for it
    const creation = { ...createModelBody(session, 1), lora_config };
    const { model_id } = await wire.result(await wire.post('create_model', creation));
    const partial = String(model_id);
    for (const model of [whole, partial]) {
      const save = { model_id: model, path: 'last', seq_id: 1 };
      await wire.result(await wire.post('save_weights_for_sampler', save));
    }
    const weights = join(directory.path, 'model.safetensors');
    const own = await readFile(weights);
    const refused = async (model: string, sampler: number) => {
      await copyFile(join(other.path, 'model.safetensors'), weights);
      const { error } = await wire.result(await askedSample(wire, session, model, sampler));
      const reason = 'has changed .*: other content in model.safetensors; .* restart the server';
      assert.match(String(error), new RegExp(`${directory.path} ${reason}`));
      await writeFile(weights, own);
    };
    await refused(whole, 0);
    await wire.samples(await askedSample(wire, session, whole, 1));
    await refused(partial, 2);
    await wire.samples(await askedSample(wire, session, partial, 3));
  });

  it('a second local backend on the same checkpoints waits for the first to end, and is refused if it does not', async () => {
    await using directory = await tinyModel();
    const first = await startOn(directory.path);
    const halfWritten = join(directory.path, 'checkpoints', 'run', 'weights', '.new.one'); // a save of the first
    await mkdir(halfWritten, { recursive: true });
    await assert.rejects(startOn(directory.path, { lockPatienceMs: 0 }), {
      name: 'UserError',
      message:
        /^process \d+ \(offbeat local-backend\) is using .*checkpoints; wait until it ends, or end it; a second backend needs another --checkpoint-dir$/,
    });
    assert(existsSync(halfWritten));

    const { log, lines } = recordingLog();
    const second = startOn(directory.path, { lockPatienceMs: 600_000, log });
    await until(() => lines.some(({ msg }) => msg === 'waiting for another backend to end'));
    await first[Symbol.asyncDispose]();
    await using _second = await second;
    assert(!existsSync(halfWritten));
  });

  it('a local backend names an occupied port and the remedy', async () => {
    await using directory = await tinyModel();
    await using backend = await startOn(directory.path);
    const port = Number(new URL(backend.url).port);
    const elsewhere = { port, checkpointDir: join(directory.path, 'others') };
    await assert.rejects(startOn(directory.path, elsewhere), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, new RegExp(`:${port} .*EADDRINUSE.*--port`));
      return true;
    });
  });

  it('a local backend answers waiting polls when it stops', async () => {
    await using directory = await tinyModel();
    const backend = await startOn(directory.path, { pollMs: 3_600_000, gapWaitMs: 3_600_000 });
    const wire = new Wire(backend.url);
    const model = await wire.createModel(await wire.createSession());
    const promise = await wire.optimStep(model, 2); // waits for id 1
    const poll = wire.tryPost('retrieve_future', promise);
    for (let i = 0; i < 5; i++) await wire.get('healthz'); // the poll, sent earlier, has arrived
    await backend[Symbol.asyncDispose]();
    const answer = (await (await poll).json()) as Record<string, unknown>;
    assert.equal(answer['type'], 'try_again');
  });
});

/** The answer of a run's sampler checkpoint `last` to one prompt. */
async function sample(wire: Wire, session: string, model: string): Promise<unknown> {
  return wire.samples(await askedSample(wire, session, model, 0));
}

/** The promise of that answer, from the sampler of this number. */
async function askedSample(wire: Wire, session: string, model: string, sampler: number) {
  const { sampling_session_id } = await wire.post('create_sampling_session', {
    session_id: session,
    sampling_session_seq_id: sampler,
    model_path: `tinker://${model}/sampler_weights/last`,
  });
  return wire.post('asample', {
    num_samples: 2,
    prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4, 5] }] },
    sampling_params: { max_tokens: 8, seed: 1 },
    sampling_session_id,
    seq_id: 0,
  });
}
