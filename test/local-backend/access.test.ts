import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Route } from '../../local-backend/http-api.js';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import {
  apiKey,
  createModelBody,
  forwardBackward,
  type Json,
  modelName,
  startOn,
  tinyModel,
  Wire,
} from './running-backend.js';
import { routes } from './routes.js';

const maxOpenedBySamplingKey = 1_000;

const nameOf = ({ method, path }: Route) => `${method} ${path.replace('/api/v1/', '')}`;
const named = (access: Route['access']) =>
  routes
    .filter((route) => route.access === access)
    .map(nameOf)
    .sort();

describe('the access of routes', () => {
  it('requests without a key can reach only health, and archives by their secret token', () => {
    assert.deepEqual(named('open'), ['GET archives/:token', 'GET healthz']);
  });

  it('the sampling key permits the routes that sampling requires', () => {
    assert.deepEqual(named('sampling'), [
      'GET get_server_capabilities',
      'GET samplers/:id',
      'POST asample',
      'POST cancel_future',
      'POST client/config',
      'POST client/dynamic_config',
      'POST create_sampling_session',
      'POST create_session',
      'POST join_sampling_session',
      'POST retrieve_future',
      'POST retrieve_futures',
      'POST session_heartbeat',
      'POST sessions/:id/finish',
      'POST telemetry',
    ]);
  });
});

describe('the sampling key', { timeout: 120_000 }, () => {
  const samplingApiKey = 'tml-sampling-key';
  let directory: Awaited<ReturnType<typeof tinyModel>>;
  let backend: LocalBackend;
  let learner: Wire;
  before(async () => {
    directory = await tinyModel();
    backend = await startOn(directory.path, { pollMs: 200, samplingApiKey });
    learner = new Wire(backend.url);
  });
  after(async () => {
    await backend[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });
  const asActor = (path: string, init: RequestInit = {}) =>
    learner.fetch(path, {
      ...init,
      headers: { 'x-api-key': samplingApiKey, 'content-type': 'application/json' },
    });

  const forbidden = routes.filter(({ access }) => access === undefined);
  it(`the sampling key is refused by each of the ${forbidden.length} routes that train, save, load, list, download or delete`, async () => {
    assert(forbidden.length >= 15);
    for (const route of forbidden) {
      const path = route.path.replaceAll(/:\w+/g, 'x').replace('*', 'weights/x');
      const { method } = route;
      const response = await asActor(path, { method, ...(method === 'POST' && { body: '{}' }) });
      assert.equal(response.status, 403, nameOf(route));
      const { detail } = (await response.json()) as { detail: string };
      assert.equal(
        detail,
        `this API key permits only sampling; ${method} ${route.path} requires the full key (--api-key of the backend)`,
      );
    }
  });

  it('an actor samples from weights that the learner saved, in a session of the learner and in its own', async () => {
    const session = await learner.createSession();
    const model = await learner.createModel(session);
    const saving = { model_id: model, seq_id: 1, path: 'v1', type: 'save_weights_for_sampler' };
    const saved = await learner.result(await learner.post('save_weights_for_sampler', saving));
    const open = (session_id: string) => ({ session_id, model_path: saved['path'] });
    const opened = await learner.post('create_sampling_session', open(session));

    const actor = new Wire(backend.url, samplingApiKey);
    const own = await actor.post('create_sampling_session', open(await actor.createSession()));
    for (const { sampling_session_id } of [opened, own]) {
      const promise = await actor.post('asample', {
        num_samples: 2,
        prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4, 5] }] },
        sampling_params: { max_tokens: 4 },
        sampling_session_id,
        seq_id: 0,
      });
      assert.equal((await actor.samples(promise)).sequences.length, 2);
    }
  });

  it('an actor cannot fill the memory of the backend with long stops, notes or telemetry reports', async () => {
    const texts = (length: number, chars: number) => Array<string>(length).fill('x'.repeat(chars));
    const sampleWith = (stop: unknown) => {
      const sample = {
        prompt: { chunks: [{ type: 'encoded_text', tokens: [3] }] },
        sampling_params: { stop },
        sampling_session_id: 'x',
      };
      return asActor('/api/v1/asample', { method: 'POST', body: JSON.stringify(sample) });
    };
    const ids = Array<number>(257).fill(7);
    for (const stop of [texts(256, 1_025), texts(257, 1), ids, 'x'.repeat(1_025)]) {
      assert.equal((await sampleWith(stop)).status, 422);
    }
    assert.equal((await sampleWith(texts(256, 1_024))).status, 404); // no such sampling session
    const { session_id } = await new Wire(backend.url, samplingApiKey).post('create_session', {
      tags: [],
      user_metadata: { note: 'x'.repeat(900_000) },
      sdk_version: '0.38.0',
    });
    const { user_metadata } = await learner.get(`sessions/${String(session_id)}`);
    assert.equal(user_metadata, null); // it cannot read it back either
    const large = { method: 'POST', body: ' '.repeat(5 * 2 ** 20) };
    assert.equal((await asActor('/api/v1/telemetry', large)).status, 413);
    const usual = { method: 'POST', body: ' '.repeat(2 ** 20) };
    assert.equal((await asActor('/api/v1/telemetry', usual)).status, 200);
  });

  it('an actor beyond the limit of sampling sessions loses its oldest, but not those of the learner', async () => {
    const actor = new Wire(backend.url, samplingApiKey);
    const session_id = await actor.createSession();
    const open = (wire: Wire, session: string) =>
      wire.post('create_sampling_session', { session_id: session, base_model: modelName });
    const openedByLearner = await open(learner, await learner.createSession());
    const first = await open(actor, session_id);
    const second = await open(actor, session_id);
    for (let opened = 2; opened <= maxOpenedBySamplingKey; opened++) await open(actor, session_id);

    const status = async ({ sampling_session_id: id }: Json) =>
      (await asActor(`/api/v1/samplers/${String(id)}`)).status;
    assert.deepEqual(
      [await status(first), await status(second), await status(openedByLearner)],
      [404, 200, 200],
    );
    const { sampler_ids } = await learner.get(`sessions/${session_id}`);
    assert.equal((sampler_ids as string[]).length, maxOpenedBySamplingKey);
  });

  it('an actor cannot guess the request ids of other clients', async () => {
    const model = await learner.createModel(await learner.createSession(), 1);
    const promise = await learner.sendForwardBackward(forwardBackward(model, 1));
    const id = String(promise['request_id']);
    assert.match(id, /^[0-9a-f]{12}-\d+-[0-9a-f]{16}$/);
    const guess = id.replace(/[0-9a-f]{16}$/, '0'.repeat(16));
    const body = JSON.stringify({ request_id: guess });
    const response = await asActor('/api/v1/retrieve_future', { method: 'POST', body });
    assert(response.status === 410 || response.status === 404, String(response.status));
    await learner.evaluation(promise);
  });

  it('the sampling key differs from the full key, which still permits everything', async () => {
    assert.notEqual(apiKey, samplingApiKey);
    const session = await learner.createSession();
    assert.equal((await learner.tryPost('create_model', createModelBody(session, 9))).status, 202);
    assert.equal((await learner.fetch('/api/v1/training_runs')).status, 200);
  });
});
