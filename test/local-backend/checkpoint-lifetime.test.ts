import assert from 'node:assert/strict';
import { after, before, describe, it, mock } from 'node:test';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import { until } from '../support/waiting.js';
import { type Json, modelName, startOn, tinyModel, Wire } from './running-backend.js';

const hour = 3_600;

describe(
  'publishing and copying a checkpoint, and the time it is kept',
  { timeout: 120_000 },
  () => {
    let directory: Awaited<ReturnType<typeof tinyModel>>;
    let backend: LocalBackend;
    let wire: Wire;
    let model: string;
    let session: string;
    const start = async () => {
      backend = await startOn(directory.path, { pollMs: 200, unloadEveryMs: 20 });
      wire = new Wire(backend.url);
    };

    before(async () => {
      mock.timers.enable({ apis: ['Date'], now: Date.parse('2026-11-23T00:00:00Z') });
      directory = await tinyModel();
      await start();
      session = await wire.createSession();
      model = await wire.createModel(session);
    });
    after(async () => {
      mock.timers.reset();
      await backend[Symbol.asyncDispose]();
      await directory[Symbol.asyncDispose]();
    });

    let seq = 1;
    const save = async (path: string, ttl_seconds?: number) => {
      const kind = 'save_weights_for_sampler';
      const promise = await wire.post(kind, { model_id: model, path, ttl_seconds, seq_id: seq++ });
      await wire.result(promise);
    };
    const ask = (method: string, name: string, action: string, body?: Json) =>
      wire.fetch(`/api/v1/training_runs/${model}/checkpoints/sampler_weights/${name}/${action}`, {
        method,
        ...(body && {
          body: JSON.stringify(body),
          headers: { 'content-type': 'application/json' },
        }),
      });
    const checkpoint = async (name: string) => {
      const { checkpoints } = await wire.get(`training_runs/${model}/checkpoints`);
      const id = `sampler_weights/${name}`;
      return (checkpoints as Json[]).find((one) => one['checkpoint_id'] === id);
    };

    it('a checkpoint is public from publish to unpublish, also after a restart', async () => {
      await save('shown');
      assert.equal((await checkpoint('shown'))?.['public'], false);
      assert.equal((await ask('POST', 'shown', 'publish')).status, 204);
      await backend[Symbol.asyncDispose]();
      await start();
      assert.equal((await checkpoint('shown'))?.['public'], true);
      assert.equal((await ask('DELETE', 'shown', 'publish')).status, 204);
      assert.equal((await checkpoint('shown'))?.['public'], false);
      assert.equal((await ask('POST', 'none', 'publish')).status, 404);
      session = await wire.createSession();
      model = await wire.createModel(session);
      seq = 1;
    });

    it('a checkpoint is published and deleted also if its name is publish', async () => {
      await save('publish');
      await save('other');
      for (const method of ['POST', 'DELETE']) {
        assert.equal((await ask(method, 'publish', 'publish')).status, 204);
        assert.equal((await checkpoint('publish'))?.['public'], method === 'POST');
      }
      const deletion = () =>
        wire.fetch(`/api/v1/training_runs/${model}/checkpoints/sampler_weights/publish`, {
          method: 'DELETE',
        });
      assert.equal((await deletion()).status, 204);
      assert.equal(await checkpoint('publish'), undefined);
      assert(await checkpoint('other'));
      assert.equal((await deletion()).status, 404);
    });

    it('a checkpoint that is named like a kind is unpublished without its kind', async () => {
      await save('weights');
      const bare = (method: string) =>
        wire.fetch(`/api/v1/training_runs/${model}/checkpoints/weights/publish`, { method });
      for (const method of ['POST', 'DELETE']) {
        assert.equal((await bare(method)).status, 204);
        assert.equal((await checkpoint('weights'))?.['public'], method === 'POST');
      }
    });

    it('a checkpoint is deleted when its time is over, with its sampling sessions', async () => {
      await save('saved-for-an-hour', hour);
      await save('extended', hour);
      await save('shortened');
      assert.equal((await ask('PUT', 'extended', 'ttl', { ttl_seconds: 3 * hour })).status, 204);
      assert.equal((await ask('PUT', 'shortened', 'ttl', { ttl_seconds: hour })).status, 204);
      const { sampling_session_id: sampler } = await wire.post('create_sampling_session', {
        session_id: session,
        base_model: modelName,
        model_path: `tinker://${model}/sampler_weights/shortened`,
      });
      assert.equal((await checkpoint('shortened'))?.['expires_at'], '2026-11-23T01:00:00.000Z');

      mock.timers.setTime(Date.parse('2026-11-23T01:00:00Z'));
      await until(async () => (await checkpoint('shortened')) === undefined);
      assert.equal(await checkpoint('saved-for-an-hour'), undefined);
      assert.equal((await wire.fetch(`/api/v1/samplers/${String(sampler)}`)).status, 404);
      assert.equal((await checkpoint('extended'))?.['expires_at'], '2026-11-23T03:00:00.000Z');
      assert.equal((await ask('PUT', 'extended', 'ttl', {})).status, 204);
      assert.equal((await checkpoint('extended'))?.['expires_at'], null);
    });

    it('a copy outlives its source, in a run that cannot be trained on', async () => {
      await save('source', hour);
      const source_path = `tinker://${model}/sampler_weights/source`;
      const copy = async (key: string) => {
        const response = await wire.fetch('/api/v1/copy_weights', {
          method: 'POST',
          headers: { 'content-type': 'application/json', 'x-idempotency-key': key },
          body: JSON.stringify({ source_path, destination_project_id: 'archive' }),
        });
        return ((await response.json()) as { tinker_path: string }).tinker_path;
      };
      const [path, resent, other] = await Promise.all([copy('a'), copy('a'), copy('b')]);
      assert.equal(resent, path);
      assert.notEqual(other, path);
      const [, run] = /^tinker:\/\/(.+)\/sampler_weights\/source$/.exec(path)!;
      assert.notEqual(run, model);

      mock.timers.setTime(Date.now() + hour * 1_000);
      await until(async () => (await checkpoint('source')) === undefined);
      const { checkpoints } = await wire.get(`training_runs/${run!}/checkpoints`);
      const [{ tinker_path, expires_at, size_bytes } = {}] = checkpoints as Json[];
      assert.deepEqual([tinker_path, expires_at], [path, null]);
      assert(Number(size_bytes) > 0);
      const opening = { session_id: session, model_path: path };
      const { sampling_session_id } = await wire.post('create_sampling_session', opening);
      const prompt = { chunks: [{ type: 'encoded_text', tokens: [3, 4] }] };
      const sampling_params = { max_tokens: 2 };
      const asked = await wire.post('asample', { prompt, sampling_params, sampling_session_id });
      assert.equal((await wire.samples(asked)).sequences.length, 1);
      assert.equal((await wire.tryPost('get_info', { model_id: run })).status, 404);
      assert.equal((await wire.tryPost('copy_weights', { source_path })).status, 404);
    });

    it('weights that were saved without a name are deleted once no client can sample from them', async () => {
      const client = await wire.createSession();
      const run = await wire.createModel(client);
      const saving = { model_id: run, sampling_session_seq_id: 0, seq_id: 1 };
      await wire.result(await wire.post('save_weights_for_sampler', saving));
      const named = { model_id: run, path: 'named', seq_id: 2 };
      await wire.result(await wire.post('save_weights_for_sampler', named));
      const names = async () => {
        const { checkpoints } = await wire.get(`training_runs/${run}/checkpoints`);
        return (checkpoints as Json[]).map((one) => one['checkpoint_id']);
      };
      const sessions = async () => (await wire.get('sessions'))['sessions'] as string[];
      const kept = { ...saving, sampling_session_seq_id: 1, seq_id: 3, ttl_seconds: 1_000 * hour };
      await wire.result(await wire.post('save_weights_for_sampler', kept));
      const all = ['checkpoint-0001', 'named', 'checkpoint-0002'].map(
        (each) => `sampler_weights/${each}`,
      );
      mock.timers.setTime(Date.now() + 48 * hour * 1_000);
      await wire.post('session_heartbeat', { session_id: client });
      const finishing = { reason: { type: 'success' } };
      assert.deepEqual((await names()).sort(), all.toSorted());
      assert.equal((await wire.tryPost(`sessions/${client}/finish`, finishing)).status, 204);
      await until(async () => !(await sessions()).includes(client));
      await save('marker', 1);
      mock.timers.setTime(Date.now() + 1_000);
      await until(async () => (await checkpoint('marker')) === undefined);
      assert.equal((await names()).length, 3); // a day from now, not from when they were saved
      mock.timers.setTime(Date.now() + 24 * hour * 1_000);
      await until(async () => (await names()).length < 3);
      assert.deepEqual((await names()).sort(), all.slice(1).sort());
    });

    it('a time to live that is no whole number of seconds is refused', async () => {
      await save('bad');
      for (const ttl_seconds of [0, -1, 1.5, 'hour', 1e12]) {
        assert.equal((await ask('PUT', 'bad', 'ttl', { ttl_seconds })).status, 422);
      }
    });
  },
);
