import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { weightsFromBackend } from '../../../cli/eval/open-weights.js';
import { PermanentError } from '../../../shared/base/errors.js';
import type { TrainingRun } from '../../../shared/tinker/training-run.js';
import { runConfig } from '../../support/messages.js';

const saved = 'tinker://restored/sampler_weights/eval-3';

/** Opens version 3, of which only the state exists, on a backend that answers a deletion so. */
async function opened(
  deleteCheckpoint: (path: string) => Promise<void>,
  warnings: string[],
  sampler: 'tinker' | 'onnx' = 'tinker',
  unload: () => Promise<void> = () => Promise.resolve(),
) {
  const loaded: [path: string, options: object][] = [];
  const restored = {
    loadState: (...asked: [string, object]) => Promise.resolve(void loaded.push(asked)),
    saveWeightsForSampler: () => {
      assert.deepEqual(loaded, [['tinker://run/weights/state-000003', { optimizer: false }]]);
      return Promise.resolve(saved);
    },
    unload,
  };
  const unused = () => Promise.reject(new Error('not asked for'));
  const client = {
    createLoraModel: () => Promise.resolve(restored as unknown as TrainingRun),
    createSamplingSession: () => Promise.resolve('session-1'),
    downloadAdapter: unused,
    downloadExternal: unused,
    deleteCheckpoint,
  };
  const found = { config: runConfig(), version: 3, step: 3, adapter: undefined };
  return await weightsFromBackend(
    client,
    { sampler },
    { ...found, samplerPath: undefined, statePath: 'tinker://run/weights/state-000003' },
    (line) => warnings.push(line),
  );
}

describe('the weights that a backend restores for an evaluation', () => {
  it('version 0 of a run that began from the base model is an untrained adapter, since it need not have been kept', async () => {
    const made: object[] = [];
    const unused = () => Promise.reject(new Error('not asked for'));
    const fresh = {
      saveWeightsForSampler: () => Promise.resolve(saved),
      unload: () => Promise.resolve(),
    };
    const client = {
      createLoraModel: (model: object) => {
        made.push(model);
        return Promise.resolve(fresh as unknown as TrainingRun);
      },

      createSamplingSession: () => Promise.resolve('session-1'),
      ...{ downloadAdapter: unused, downloadExternal: unused },
      deleteCheckpoint: () => Promise.resolve(),
    };
    const config = runConfig({ lora: { rank: 16, seed: 3 } });
    const found = { config, version: 0, step: 0, adapter: undefined };
    const unsaved = { ...found, samplerPath: undefined, statePath: undefined };
    await using weights = await weightsFromBackend(
      client,
      { sampler: 'tinker' },
      unsaved,
      () => undefined,
    );
    assert.equal(weights.samplerPath, saved);
    assert.deepEqual(made, [{ baseModel: config.model.name, rank: 16, seed: 3 }]);
  });

  it('restored weights are deleted after the evaluation', async () => {
    const deleted: string[] = [];
    const weights = await opened((path) => Promise.resolve(void deleted.push(path)), []);
    assert.deepEqual([weights.samplerPath, weights.samplingSessionId], [saved, 'session-1']);
    await weights[Symbol.asyncDispose]();
    assert.deepEqual(deleted, [saved]);
  });

  it('restored weights are deleted too if their adapter cannot be fetched', async () => {
    const deleted: string[] = [];
    const opening = opened((path) => Promise.resolve(void deleted.push(path)), [], 'onnx');
    await assert.rejects(opening, /not asked for/);
    assert.deepEqual(deleted, [saved]);
  });

  it('the adapter into which they were restored gives its place back, and is reported if it cannot', async () => {
    const warnings: string[] = [];
    let unloads = 0;
    const unload = () => {
      unloads += 1;
      return unloads === 1 ? Promise.resolve() : Promise.reject(new Error('busy'));
    };
    const deleted = () => Promise.resolve();
    await assert.rejects(opened(deleted, warnings, 'onnx', unload), /not asked for/);
    const weights = await opened(deleted, warnings, 'tinker', unload);
    assert.equal(unloads, 1);
    await weights[Symbol.asyncDispose]();
    assert.deepEqual(
      [unloads, warnings],
      [2, ['an adapter stays loaded on the backend for a while (busy)']],
    );
  });

  it('restored weights that cannot be deleted are reported, and cost no result', async () => {
    const warnings: string[] = [];
    const refused = () => Promise.reject(new PermanentError('403: only the owner may delete'));
    const measure = async () => {
      await using _weights = await opened(refused, warnings);
      return 'the result';
    };
    assert.equal(await measure(), 'the result');
    assert.deepEqual(warnings, [
      `${saved} stays on the backend: it could not be deleted (403: only the owner may delete)`,
    ]);
  });
});
