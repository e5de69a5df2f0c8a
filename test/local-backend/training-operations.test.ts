import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CheckpointStore } from '../../local-backend/checkpoint-store.js';
import { FutureStore } from '../../local-backend/futures.js';
import type { OperationResult } from '../../local-backend/operation-result.js';
import { SamplingSessions } from '../../local-backend/sampling-sessions.js';
import { Sessions } from '../../local-backend/sessions.js';
import { TrainingOperations } from '../../local-backend/training-operations.js';
import { TrainingRuns } from '../../local-backend/training-runs.js';
import type { TrainingCalls } from '../../local-backend/training-worker.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import type { WorkerCalls } from '../../shared/service/worker-calls.js';
import {
  CreateModelRequest,
  OptimStepRequest,
  SaveWeightsForSamplerRequest,
} from '../../shared/tinker/api.js';
import { silent } from '../support/log.js';
import { tinySizes } from '../support/tiny-model.js';
import { gate, never } from '../support/waiting.js';
import { createModelBody, modelName } from './running-backend.js';
import { unreadDirectory } from './values.js';

describe('a save for a sampler that outlasts its session', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-operations-'));
  });
  after(() => rm(folder, { recursive: true }));

  /** A run whose client sends a step and a save, and finishes its session while the training thread is at `last`. */
  async function finishedDuring(last: 'optimStep' | 'save', path?: string) {
    const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config');
    const directory = unreadDirectory(config);
    const model = { name: modelName, directory };
    const [begun, finished] = [gate(), gate()];
    const answers = {
      optimStep: { gradNorm: 0, step: 1 },
      save: { adapter: new Uint8Array(1), adapterConfig: '{}' },
    };
    const worker = {
      async call(name: string) {
        if (name === last) {
          begun.open();
          await finished.opened;
        }
        return name in answers ? answers[name as keyof typeof answers] : undefined;
      },
    } as unknown as WorkerCalls<TrainingCalls>;
    const futures = new FutureStore<OperationResult>();
    const sessions = new Sessions();
    const store = await CheckpointStore.open(await mkdtemp(join(folder, 'case-')), silent);
    const noSampler = () => assert.fail('nothing is sampled');
    const samplers = new SamplingSessions(model, sessions, store, futures, noSampler, worker);
    const runs = new TrainingRuns(model, sessions, worker, futures, 10_000, silent);
    const operations = new TrainingOperations(model, runs, worker, store, samplers);
    const session = sessions.create();
    const { modelId } = runs.create(CreateModelRequest.parse(createModelBody(session.id)));
    const run = runs.get(modelId);
    const ids = { model_id: modelId, seq_id: 1 };
    operations.optimStep(run, OptimStepRequest.parse({ ...ids, adam_params: {} }));
    const save = SaveWeightsForSamplerRequest.parse({ ...ids, seq_id: 2, path });
    const saving = operations.saveWeightsForSampler(run, save);
    await begun.opened;
    sessions.finish(session.id);
    runs.unloadOf(session, 'finished');
    samplers.closeOf(session);
    finished.open();
    const outcome = await futures.wait(saving, 60_000, never);
    return { outcome, open: samplers.lastUses().open.size, saved: store.list().length };
  }
  const error = /session ".*" is unknown; sessions end when their client finishes them/;

  it('a save for a sampler in an ended session opens none, and saves nothing that only the sampler would have used', async () => {
    const { outcome, ...left } = await finishedDuring('optimStep');
    assert(outcome?.isOk === false && outcome.category === 'user');
    assert.match(outcome.error, error);
    assert.deepEqual(left, { open: 0, saved: 0 });
  });

  it('a save for a sampler opens none if the session ends while the weights are saved', async () => {
    const { outcome, open } = await finishedDuring('save');
    assert(outcome?.isOk === false);
    assert.match(outcome.error, error);
    assert.equal(open, 0);
  });

  it('a save for a sampler in an ended session saves weights that have a name', async () => {
    const { outcome, ...left } = await finishedDuring('optimStep', 'last');
    assert.equal(outcome?.isOk, true);
    assert.deepEqual(left, { open: 0, saved: 1 });
  });
});
