import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Sessions } from '../../local-backend/sessions.js';
import { until } from '../support/waiting.js';
import { startOn, tinyModel, Wire } from './running-backend.js';

const inactivityMs = 600_000; // after which a client counts as gone

describe('an abandoned training run', () => {
  it('an abandoned run is unloaded, but its checkpoints and samplers are kept', async () => {
    let now = 0;
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path, { now: () => now, unloadEveryMs: 5 });
    const wire = new Wire(backend.url);
    const gone = await wire.createSession();
    const lost = await wire.createModel(gone);
    const saving = await wire.post('save_weights_for_sampler', {
      model_id: lost,
      path: 'v1',
      seq_id: 1,
    });
    const { path } = await wire.result(saving);
    const { sampling_session_id: sampler } = await wire.post('create_sampling_session', {
      session_id: gone,
      sampling_session_seq_id: 0,
      model_path: path,
    });
    const here = await wire.createSession();
    const kept = await wire.createModel(here);

    const status = async (id: string) =>
      (await wire.tryPost('get_info', { model_id: id, type: 'get_info' })).status;
    await until(async () => {
      now += inactivityMs / 10;
      await wire.post('session_heartbeat', { session_id: here });
      return !((await wire.get('sessions'))['sessions'] as string[]).includes(gone);
    });
    assert.equal(await status(lost), 404);
    assert.equal(await status(kept), 200);
    const sampled = await wire.post('asample', {
      sampling_session_id: sampler,
      prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4, 5] }] },
      sampling_params: { max_tokens: 4, temperature: 1, seed: 1 },
      num_samples: 2,
      seq_id: 1,
    });
    assert.equal((await wire.samples(sampled)).sequences.length, 2);
  });
});

describe('a training run whose client sends no heartbeat', () => {
  it('a run stays loaded while its client sends requests but no heartbeat', async () => {
    let now = 0;
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path, { now: () => now, unloadEveryMs: 5 });
    const wire = new Wire(backend.url);
    const silent = await wire.createSession();
    const run = await wire.createModel(await wire.createSession());
    const sessions = async () => (await wire.get('sessions'))['sessions'] as string[];
    await until(async () => {
      now += inactivityMs / 10;
      await wire.post('get_info', { model_id: run, type: 'get_info' });
      return !(await sessions()).includes(silent);
    });
    assert.equal((await sessions()).length, 1);
  });
});

describe('a session', () => {
  it('a session ends after its client has been inactive for 10 minutes', () => {
    let now = 0;
    const sessions = new Sessions(() => now);
    const { id } = sessions.create();
    for (let minute = 0; minute < 30; minute++) {
      now += inactivityMs / 10;
      sessions.get(id);
      assert.deepEqual(sessions.endInactive(), []);
    }
    for (let minute = 1; minute < 10; minute++) {
      now += inactivityMs / 10;
      assert.equal(sessions.peek(id).id, id); // to read it is no activity
      assert.deepEqual(sessions.endInactive(), []);
    }
    now += inactivityMs / 10;
    assert.deepEqual(
      sessions.endInactive().map((ended) => ended.id),
      [id],
    );
    assert.throws(() => sessions.get(id), /10 minutes without a heartbeat/);
  });

  it('a session survives a suspension of the backend, which receives no heartbeats meanwhile', () => {
    let now = 0;
    const sessions = new Sessions(() => now);
    const { id } = sessions.create();
    now += 10 * inactivityMs;
    assert.deepEqual(sessions.endInactive(), []);
    assert.equal(sessions.get(id).id, id);
  });
});

describe('a session that its client finishes', () => {
  it('a finished session frees its runs and samplers and keeps its checkpoints, and is finished once', async () => {
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path);
    const wire = new Wire(backend.url);
    const session = await wire.createSession();
    const run = await wire.createModel(session);
    const saving = { model_id: run, sampling_session_seq_id: 0, seq_id: 1 };
    const saved = await wire.result(await wire.post('save_weights_for_sampler', saving));
    // As the SDK sends it again after a lost answer.
    const again = { ...saving, sampling_session_seq_id: 1 };
    const resent = await wire.result(await wire.post('save_weights_for_sampler', again));
    assert.deepEqual(resent, saved);
    const finish = () =>
      wire.tryPost(`sessions/${session}/finish`, { reason: { type: 'success' }, detail: null });
    const status = async (path: string) => (await wire.fetch(`/api/v1/${path}`)).status;

    assert.equal((await finish()).status, 204);
    assert.equal((await finish()).status, 204, 'a repeated one, after a lost answer');
    assert.equal((await wire.tryPost('get_info', { model_id: run })).status, 404);
    assert.equal(await status(`samplers/${String(saved['sampling_session_id'])}`), 404);
    assert.equal(await status(`sessions/${session}`), 404);
    const { checkpoints } = await wire.get('checkpoints');
    assert.equal((checkpoints as unknown[]).length, 1);
  });

  it('a session that nobody opened, and a reason that the API does not have, are refused', async () => {
    await using model = await tinyModel(1);
    await using backend = await startOn(model.path);
    const wire = new Wire(backend.url);
    const success = { reason: { type: 'success' } };
    assert.equal((await wire.tryPost('sessions/none/finish', success)).status, 404);
    const session = await wire.createSession();
    const other = { reason: { type: 'bored' } };
    assert.equal((await wire.tryPost(`sessions/${session}/finish`, other)).status, 422);
  });
});
