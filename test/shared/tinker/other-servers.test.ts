import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodeForwardBackwardRequest } from '../../../shared/tinker/codec.js';
import {
  AdapterOutOfReach,
  BadRequest,
  RunLost,
  SequenceConflict,
  Unavailable,
} from '../../../shared/tinker/errors.js';
import { connectTo, ScriptedServer, type Reply } from './scripted-server.js';
import { adam, datum, StrictRun } from './strict-run.js';

const model = { baseModel: 'base', rank: 8 };
const saved = 'tinker://run-1/sampler_weights/v-1';

/** A run at a server with other manners than TuFT's. */
async function started() {
  const server = await ScriptedServer.start();
  const strict = new StrictRun(server);
  const lines: string[] = [];
  const { client, time } = await connectTo(server, { lines });
  return { server, strict, client, time, lines };
}

describe('servers of other manners', () => {
  it('the reason of a refusal is read where Miles and open-rl put it', async () => {
    const { server, client } = await started();
    await using _server = server;
    await using _client = client;
    for (const json of [
      { error: 'no free adapter slots (capacity 1)' },
      { type: 'RequestFailedResponse', error_message: 'no free adapter slots (capacity 1)' },
      { error: 'invalid request', detail: 'no free adapter slots (capacity 1)' },
    ]) {
      server.script('POST create_model', { status: 400, json });
      await assert.rejects(client.createLoraModel(model), (error) => {
        assert(error instanceof BadRequest);
        assert.equal(error.failure.detail, 'no free adapter slots (capacity 1)');
        return true;
      });
    }
  });

  it('a server that says in another form that it lacks a call offers no archives, and keeps its run', async () => {
    const { server, client } = await started();
    await using _server = server;
    await using _client = client;
    const route = 'training_runs/run-1/checkpoints/sampler_weights/v-1';
    server.script(`GET ${route}/archive`, { status: 404, json: { error: 'Not Found' } });
    await assert.rejects(client.downloadAdapter(saved), AdapterOutOfReach);
  });

  it('an adapter is created without its seed, with a warning, where the server takes none', async () => {
    const { server, client, lines } = await started();
    await using _server = server;
    await using _client = client;
    server.script(
      'POST create_model',
      { status: 400, json: { error: 'lora_config.seed is not supported' } },
      { json: { request_id: 'future-0' } },
    );
    server.script('POST retrieve_future', { json: { model_id: 'run-1' } });
    await client.createLoraModel({ ...model, seed: 3 });
    const configs = server.sent('create_model').map(({ json }) => json['lora_config']);
    assert.deepEqual(
      configs.map((config) => (config as { seed?: number }).seed),
      [3, undefined],
    );
    assert(lines.some((line) => line.includes('adapter created without its seed')));
  });

  it('another refusal of an adapter is not tried again', async () => {
    const { server, client } = await started();
    await using _server = server;
    await using _client = client;
    server.script('POST create_model', { status: 400, json: { error: 'rank 8 is above 4' } });
    await assert.rejects(client.createLoraModel({ ...model, seed: 3 }), BadRequest);
    assert.equal(server.sent('create_model').length, 1);
  });

  it('sampler weights whose path has no kind, as at SkyRL, are named with it', async () => {
    const { server, strict, client } = await started();
    await using _server = server;
    await using _client = client;
    const run = await strict.create(client);
    server.script('POST retrieve_future', { json: { path: 'tinker://run-1/v-1' } });
    assert.equal(await run.saveWeightsForSampler('v-1'), saved);
    server.script('POST create_sampling_session', { json: { sampling_session_id: 'samples' } });
    assert.equal(await client.createSamplingSession(saved), 'samples');
  });

  for (const [server, json] of [
    ['Miles', { error: "unknown model 'run-1'" }],
    ['Miles, later', { error: "model 'run-1' was unloaded: lease expired" }],
    ['SkyRL', { detail: 'Model run-1 not loaded (likely stale request from previous server)' }],
  ] as const) {
    it(`a run that the server has forgotten is lost, so that it is restored, though the status is 400 (${server})`, async () => {
      const { server, strict, client } = await started();
      await using _server = server;
      await using _client = client;
      const run = await strict.create(client);
      server.script('POST optim_step', { status: 400, json });
      await assert.rejects(run.optimStep(adam), RunLost);
    });
  }

  it('a future that fails since the model is gone loses the run', async () => {
    const { server, strict, client } = await started();
    await using _server = server;
    await using _client = client;
    const run = await strict.create(client);
    const error = "model 'run-1' was unloaded: lease expired";
    server.script('POST retrieve_future', { json: { error, category: 'user' } });
    await assert.rejects(run.optimStep(adam), RunLost);
  });

  it('a checkpoint that SkyRL is still saving is asked for again', async () => {
    const { server, client, time } = await started();
    await using _server = server;
    await using _client = client;
    server.script(
      'POST create_sampling_session',
      { status: 425, json: { detail: 'Checkpoint is still being created' } },
      { json: { sampling_session_id: 'samples' } },
    );
    assert.equal(await client.createSamplingSession(saved), 'samples');
    assert.deepEqual(time.slept, [500]);
  });

  for (const [status, detail] of [
    [404, 'Not Found'],
    [405, 'Method Not Allowed'],
    [501, 'Not Implemented'],
  ] as const) {
    it(`the client warns once if the server has no call that deletes checkpoints (${status})`, async () => {
      const { server, client, time, lines } = await started();
      await using _server = server;
      await using _client = client;
      const path = 'training_runs/run-1/checkpoints/sampler_weights/v-1';
      server.script(`DELETE ${path}`, { status, json: { detail } });
      await client.deleteCheckpoint(saved);
      await client.deleteCheckpoint(saved);
      assert.equal(lines.filter((line) => line.includes('deletes no checkpoints')).length, 1);
      assert.deepEqual(time.slept, [], 'it is not asked again');
    });
  }

  it('a temperature of 1 is not sent, since SkyRL refuses the setting, and another one is', async () => {
    const { server, strict, client } = await started();
    await using _server = server;
    await using _client = client;
    const run = await strict.create(client);
    await run.forwardBackward([datum(1)], 'importance_sampling', { temperature: 1 });
    await run.forwardBackward([datum(1)], 'importance_sampling', { temperature: 0.5 });
    const sent = server
      .sent('forward_backward')
      .map(({ body }) => decodeForwardBackwardRequest(body));
    assert.deepEqual(
      sent.map(({ config }) => config),
      [{}, { temperature: 0.5 }],
    );
  });
});

describe('a save that SkyRL refuses because the name exists', () => {
  const state = 'tinker://run-1/weights/a';
  const exists: Reply = {
    status: 409,
    json: { detail: "Checkpoint 'a' already exists for model 'run-1'" },
  };
  const listing = (...paths: string[]): Reply => ({
    json: {
      checkpoints: paths.map((tinker_path) => ({
        checkpoint_id: 'a',
        checkpoint_type: 'training',
        tinker_path,
      })),
    },
  });

  /** A run whose saves get these replies, and the lists of its checkpoints those. */
  async function saving(saves: [Reply, ...Reply[]], lists: [Reply, ...Reply[]]) {
    const scene = await started();
    const run = await scene.strict.create(scene.client);
    scene.server.script('POST save_weights', ...saves);
    scene.server.script('GET training_runs/run-1/checkpoints', ...lists);
    return { ...scene, run };
  }

  it('a copy is that save, which is done once the server lists it, and the run goes on', async () => {
    const scene = await saving(['cut', exists], [listing(), listing(), listing(state)]);
    await using _server = scene.server;
    await using _client = scene.client;
    const saved = scene.run.saveState('a');
    scene.strict.nextSeqId = 2;
    const stepped = scene.run.optimStep(adam);
    assert.equal(await saved, state);
    await stepped;
    assert.deepEqual(scene.strict.seqIds, [1, 1, 2]);
    assert.equal(scene.server.sent('training_runs/run-1/checkpoints').length, 3);
  });

  it('a copy of a save that is never listed fails', async () => {
    const scene = await saving(['cut', exists], [listing('tinker://run-1/sampler_weights/a')]);
    await using _server = scene.server;
    await using _client = scene.client;
    await assert.rejects(scene.run.saveState('a'), Unavailable);
  });

  it('a first try is refused', async () => {
    const scene = await saving([exists], [listing(state)]);
    await using _server = scene.server;
    await using _client = scene.client;
    await assert.rejects(scene.run.saveState('a'), SequenceConflict);
  });

  it('a copy is refused if the run has saved under this name before', async () => {
    const accepted: Reply = { json: { request_id: 'first' } };
    const scene = await saving([accepted, 'cut', exists], [listing(state)]);
    await using _server = scene.server;
    await using _client = scene.client;
    scene.server.script('POST retrieve_future', { json: { path: state } });
    assert.equal(await scene.run.saveState('a'), state);
    await assert.rejects(scene.run.saveState('a'), SequenceConflict);
  });
});
