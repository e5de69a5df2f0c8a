import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { FutureStore } from '../../local-backend/futures.js';
import type { OperationResult } from '../../local-backend/operation-result.js';
import { Sessions } from '../../local-backend/sessions.js';
import { TrainingRuns } from '../../local-backend/training-runs.js';
import type { TrainingCalls } from '../../local-backend/training-worker.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import type { WorkerCalls } from '../../shared/service/worker-calls.js';
import { CreateModelRequest } from '../../shared/tinker/api.js';
import { silent } from '../support/log.js';
import { tinySizes } from '../support/tiny-model.js';
import { never } from '../support/waiting.js';
import { createModelBody, modelName } from './running-backend.js';
import { unreadDirectory } from './values.js';

/** Training runs with a thread that only records what it is asked for, and one run. */
function open() {
  let now = 0;
  const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config');
  const directory = unreadDirectory(config);
  const calls: string[] = [];
  const worker = {
    call: (name: string) => {
      calls.push(name);
      return Promise.resolve();
    },
  } as unknown as WorkerCalls<TrainingCalls>;
  const futures = new FutureStore<OperationResult>({ keepUnfetchedMs: 100 }, () => now);
  const sessions = new Sessions();
  const model = { name: modelName, directory };
  const runs = new TrainingRuns(model, sessions, worker, futures, 10_000, silent);
  const session = sessions.create();
  const { modelId } = runs.create(CreateModelRequest.parse(createModelBody(session.id)));
  const names = [modelId, `${session.id}:train:0`]; // the second as the SDK derives it
  const expire = () => {
    now = 100;
  };
  return { runs, session, futures, calls, modelId, names, expire };
}

describe('a training run that is unloaded', () => {
  it('a run is unloaded once, even if its client asks again by either of its names', async () => {
    const { runs, futures, calls, modelId, names } = open();
    const first = runs.unload(modelId);
    for (const name of names) assert.deepEqual(runs.unload(name), first);
    const json = { model_id: modelId, type: 'unload_model' };
    const done = { isOk: true, value: { kind: 'json', json } };
    assert.deepEqual(await futures.wait(first.requestId, 60_000, never), done);
    assert.deepEqual(calls, ['create', 'drop']);
  });

  it('a run that is unloaded again is answered even when the first answer is no longer kept', async () => {
    const { runs, futures, calls, modelId, expire } = open();
    const first = runs.unload(modelId);
    await futures.wait(first.requestId, 60_000, never);
    expire();
    const again = runs.unload(modelId);
    assert.notEqual(again.requestId, first.requestId);
    assert.equal(again.modelId, modelId);
    assert((await futures.wait(again.requestId, 60_000, never))?.isOk);
    assert.deepEqual(calls, ['create', 'drop']);
  });

  it('the error of other operations says why the run is gone, and an unknown run is refused', async () => {
    const status = 404;
    const byClient = open();
    byClient.runs.unload(byClient.modelId);
    for (const name of byClient.names) {
      const message = /is not in training \(its client unloaded it\)/;
      assert.throws(() => byClient.runs.get(name), { status, message });
    }
    const finished = open();
    finished.runs.unloadOf(finished.session, 'finished');
    const message = /its session was finished/;
    assert.throws(() => finished.runs.get(finished.modelId), { status, message });
    assert.equal(finished.runs.unload(finished.modelId).modelId, finished.modelId);
    await turn();
    assert.deepEqual(finished.calls, ['create', 'drop']);
    const unknown = /model "other" is not in training \(it is unknown/;
    assert.throws(() => finished.runs.unload('other'), { status, message: unknown });
  });
});
