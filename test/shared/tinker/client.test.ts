import assert from 'node:assert/strict';
import { describe, it, mock } from 'node:test';
import { UserError } from '../../../shared/base/errors.js';
import { BadRequest, Unavailable } from '../../../shared/tinker/errors.js';
import { connectTo, ScriptedServer } from './scripted-server.js';
import { StrictRun } from './strict-run.js';

const model = { baseModel: 'base', rank: 8, seed: 3 };
const state = 'tinker://old-run/weights/step-4';

describe('creating models', () => {
  it('the client creates a model with its rank and seed, without the output head', async () => {
    await using server = await ScriptedServer.start();
    new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const first = await client.createLoraModel(model);
    await client.createLoraModel(model);
    assert.equal(first.modelId, 'run-1');
    const [one, two] = server.sent('create_model').map(({ json }) => json);
    assert.deepEqual(one, {
      type: 'create_model',
      session_id: 'session-1',
      model_seq_id: 0,
      base_model: 'base',
      lora_config: { rank: 8, seed: 3, train_unembed: false, train_mlp: true, train_attn: true },
    });
    assert.equal(two!['model_seq_id'], 1);
  });

  it('the client refuses a model that the server does not serve, and names those that it serves', async () => {
    await using server = await ScriptedServer.start();
    const { client } = await connectTo(server);
    await using _closed = client;
    await assert.rejects(client.createLoraModel({ ...model, baseModel: 'other' }), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /does not serve the model "other": it serves base/);
      return true;
    });
    assert.equal(server.sent('create_model').length, 0);
  });

  it('the client restores a saved state with its optimizer, as operation 1 of a new run', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    await client.restoreLoraModel({ ...model, statePath: state });
    assert.deepEqual(strict.done, ['load_weights true']);
    assert.deepEqual(strict.seqIds, [1]);
  });

  it('the client gives an adapter back if the state cannot be restored, and says why', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    for (const unloading of [
      { json: { request_id: 'unloaded' } },
      { status: 404, json: { detail: 'Not Found' } },
    ]) {
      server.script('POST load_weights', { status: 404, json: { detail: 'Checkpoint not found' } });
      server.script('POST unload_model', unloading);
      await assert.rejects(
        client.restoreLoraModel({ ...model, statePath: state }),
        (error) => error instanceof BadRequest && /Checkpoint not found/.test(error.message),
      );
    }
    assert.deepEqual(strict.done, []);
    const unloaded = server.sent('unload_model').map(({ json }) => json['model_id']);
    assert.deepEqual(unloaded, ['run-1', 'run-1']);
  });

  it('the client soon stops repeating an internal error, as of a model that cannot be created', async () => {
    await using server = await ScriptedServer.start();
    const detail = 'Failed to create model: unsupported architecture';
    server.script('POST create_model', { status: 500, json: { detail } });
    const { client } = await connectTo(server);
    await using _closed = client;
    await assert.rejects(
      client.createLoraModel(model),
      (error) => error instanceof Unavailable && error.message.includes(detail),
    );
    assert.equal(server.sent('create_model').length, 2);
  });

  it('the client opens another session if the server forgot this one', async () => {
    await using server = await ScriptedServer.start();
    new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const gone = { status: 404, json: { detail: 'Session not found' } };
    const made = { status: 201, json: { sampling_session_id: 'sampling-1' } };
    server.script('POST create_sampling_session', gone, made);
    assert.equal(await client.createSamplingSession(state), 'sampling-1');
    assert.deepEqual(
      server.sent('create_sampling_session').map(({ json }) => json),
      ['session-1', 'session-2'].map((session_id) => ({
        type: 'create_sampling_session',
        session_id,
        sampling_session_seq_id: 0,
        model_path: state,
      })),
    );
  });

  it('the client names a missing checkpoint as the cause, not the session', async () => {
    await using server = await ScriptedServer.start();
    const detail = 'Failed to create sampling session: Checkpoint step-4 not found';
    server.script('POST create_sampling_session', { status: 404, json: { detail } });
    const { client } = await connectTo(server);
    await using _closed = client;
    await assert.rejects(client.createSamplingSession(state), BadRequest);
    assert.equal(server.sent('create_session').length, 1);
  });
});

describe('the heartbeat', () => {
  it('the heartbeat is sent every 10 s, survives silence, and opens a new session after three refusals', async () => {
    await using server = await ScriptedServer.start();
    mock.timers.enable({ apis: ['setInterval'] });
    try {
      const plain500 = { status: 500, bytes: 'Internal Server Error', type: 'text/plain' };
      const ok = { json: { type: 'session_heartbeat' } };
      server.script('POST session_heartbeat', ok, 'cut', plain500, plain500, plain500, ok);
      const lines: string[] = [];
      const { client } = await connectTo(server, { lines });
      await using _closed = client;
      mock.timers.tick(9_999);
      for (let i = 0; i < 20; i++) await new Promise(setImmediate);
      assert.equal(server.sent('session_heartbeat').length, 0);
      mock.timers.tick(1);
      while (server.sent('session_heartbeat').length < 6) {
        await new Promise(setImmediate); // one beat waits for the answer to the one before
        mock.timers.tick(10_000);
      }
      assert.deepEqual(
        server
          .sent('session_heartbeat')
          .slice(0, 6)
          .map(({ json }) => json['session_id']),
        [...new Array<string>(5).fill('session-1'), 'session-2'],
      );
      assert(lines.some((line) => line.includes('heartbeat without an answer')));
    } finally {
      mock.timers.reset();
    }
  });

  it('the heartbeat ends when the client is closed', async () => {
    await using server = await ScriptedServer.start();
    mock.timers.enable({ apis: ['setInterval'] });
    try {
      const { client } = await connectTo(server);
      await client[Symbol.asyncDispose]();
      mock.timers.tick(60_000);
      for (let i = 0; i < 20; i++) await new Promise(setImmediate);
      assert.equal(server.sent('session_heartbeat').length, 0);
    } finally {
      mock.timers.reset();
    }
  });
});

describe("reading the server's runs and checkpoints", () => {
  it('the client describes a run, and soon gives up on a bare 500, which TuFT gives for an unknown run', async () => {
    await using server = await ScriptedServer.start();
    const strict = new StrictRun(server);
    const { client } = await connectTo(server);
    await using _closed = client;
    const run = await strict.create(client);
    server.script(
      'POST get_info',
      {
        json: {
          type: null,
          model_data: { arch: 'toy', model_name: 'base', tokenizer_id: 'tok' },
          model_id: 'run-1',
          lora_rank: 8,
        },
      },
      { status: 500, bytes: 'Internal Server Error', type: 'text/plain' },
    );
    assert.deepEqual(await run.info(), { baseModel: 'base', loraRank: 8, tokenizerId: 'tok' });
    await assert.rejects(run.info(), Unavailable);
    assert.equal(server.sent('get_info').length, 3);
  });

  it('the client lists all checkpoints, page by page', async () => {
    await using server = await ScriptedServer.start();
    const { client } = await connectTo(server);
    await using _closed = client;
    const checkpoint = (name: string, size_bytes: number | null) => ({
      checkpoint_id: name,
      checkpoint_type: 'training',
      tinker_path: `tinker://run-1/weights/${name}`,
      time: '2026-01-01T00:00:00Z',
      size_bytes,
      public: false,
    });
    const page = (offset: number, name: string, size: number | null) => ({
      json: {
        checkpoints: [checkpoint(name, size)],
        cursor: { offset, limit: 1, total_count: 2 },
      },
    });
    server.script('GET training_runs/run-1/checkpoints', page(0, 'a', 12), page(1, 'b', null));
    const time = '2026-01-01T00:00:00Z';
    assert.deepEqual(await client.listCheckpoints('run-1'), [
      { path: 'tinker://run-1/weights/a', kind: 'training', time, bytes: 12 },
      { path: 'tinker://run-1/weights/b', kind: 'training', time },
    ]);
  });

  it('the client deletes a checkpoint by its kind and name, even if it is already gone', async () => {
    await using server = await ScriptedServer.start();
    const { client } = await connectTo(server);
    await using _closed = client;
    const path = 'training_runs/old-run/checkpoints/weights/step-4';
    server.script(`DELETE ${path}`, { status: 204, headers: {} }, { status: 404, json: {} });
    await client.deleteCheckpoint(state);
    await client.deleteCheckpoint(state);
    assert.equal(server.sent(path).length, 2);
    await assert.rejects(client.deleteCheckpoint('tinker://x/../y'), /no tinker path/);
  });

  it('the client takes a 500 for a deleted checkpoint only if the server no longer lists it', async () => {
    await using server = await ScriptedServer.start();
    const { client } = await connectTo(server);
    await using _closed = client;
    const checkpoints = 'training_runs/old-run/checkpoints';
    const plain500 = { status: 500, bytes: 'Internal Server Error', type: 'text/plain' };
    server.script(`DELETE ${checkpoints}/weights/step-4`, plain500);
    const listed = { checkpoint_id: 'step-4', checkpoint_type: 'training', tinker_path: state };
    server.script(
      `GET ${checkpoints}`,
      { json: { checkpoints: [] } },
      { json: { checkpoints: [listed] } },
    );
    await client.deleteCheckpoint(state);
    await assert.rejects(client.deleteCheckpoint(state), Unavailable);
  });
});
