import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { LocalBackend } from '../../local-backend/local-backend.js';
import { forwardBackward, type Json, startOn, tinyModel, Wire } from './running-backend.js';

describe('a model whose state cannot be loaded', () => {
  let directory: Awaited<ReturnType<typeof tinyModel>>;
  let backend: LocalBackend;
  let wire: Wire;
  let session: string;
  let state: string;
  let models = 0;

  before(async () => {
    directory = await tinyModel();
    backend = await startOn(directory.path);
    wire = new Wire(backend.url);
    session = await wire.createSession();
    const model = await wire.createModel(session, models++);
    const saving = { model_id: model, path: 'one', seq_id: 1 };
    state = String((await wire.result(await wire.post('save_weights', saving)))['path']);
  });
  after(async () => {
    await backend[Symbol.asyncDispose]();
    await directory[Symbol.asyncDispose]();
  });

  const load = (model: string, seqId: number, path: string) =>
    wire.post('load_weights', { model_id: model, path, optimizer: true, seq_id: seqId });
  const forward = async (model: string, seqId: number) =>
    wire.sendForwardBackward(forwardBackward(model, seqId, { isForwardOnly: true }));
  const errorOf = async (promise: Json) => String((await wire.result(promise))['error']);
  const lost = /was to have the weights of .*, which could not be loaded \(.*\); load a state/;

  it('a model whose state cannot be loaded neither trains nor saves its first weights until another state is loaded', async () => {
    const model = await wire.createModel(session, models++);
    const missing = state.replace('one', 'none');
    // Sent without waiting for the answers, as the SDK does.
    const sent = [
      await load(model, 1, missing),
      await forward(model, 2),
      await wire.optimStep(model, 3),
      await wire.post('save_weights', { model_id: model, path: 'two', seq_id: 4 }),
    ];
    const [loading, ...others] = await Promise.all(sent.map(errorOf));
    assert.match(loading!, /none not found/);
    for (const error of others) assert.match(error, lost);
    assert.equal((await wire.result(await load(model, 5, state)))['path'], state);
    await wire.evaluation(await forward(model, 6));
  });

  it('a model that has been trained or loaded before keeps its weights', async () => {
    for (const loads of [true, false]) {
      const model = await wire.createModel(session, models++);
      await wire.result(loads ? await load(model, 1, state) : await wire.optimStep(model, 1));
      assert.match(await errorOf(await load(model, 2, state.replace('one', 'none'))), /not found/);
      await wire.evaluation(await forward(model, 3));
    }
  });

  it('a model that was to be made from the state is forgotten', async () => {
    const file = join(
      ...[directory.path, 'checkpoints', ...state.slice('tinker://'.length).split('/')],
      'adapter',
      'adapter_model.safetensors',
    );
    await rename(file, `${file}.away`);
    const number = models++;
    const from = { session_id: session, model_seq_id: number, path: state, optimizer: true };
    const loading = await wire.post('load_weights', from);
    const derived = `${session}:train:${number}`;
    const training = await forward(derived, 1).catch(() => undefined); // unless it is forgotten already
    assert.match(await errorOf(loading), /ENOENT/);
    if (training !== undefined) assert.match(await errorOf(training), lost);
    for (const name of [derived, loading['model_id']]) {
      const refused = await wire.tryPost('get_info', { model_id: name });
      assert.equal(refused.status, 404);
      assert.match(await refused.text(), lost);
      const unloaded = await wire.result(await wire.post('unload_model', { model_id: name }));
      assert.deepEqual(unloaded, { model_id: loading['model_id'], type: 'unload_model' });
    }
    await rename(`${file}.away`, file);
  });
});
