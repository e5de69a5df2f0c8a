import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CheckpointStore } from '../../local-backend/checkpoint-store.js';
import { FutureStore } from '../../local-backend/futures.js';
import type { OperationResult } from '../../local-backend/operation-result.js';
import { SamplingSessions } from '../../local-backend/sampling-sessions.js';
import type { SamplingCalls } from '../../local-backend/sampling-worker.js';
import { Sessions } from '../../local-backend/sessions.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import type { WorkerCalls } from '../../shared/service/worker-calls.js';
import { SampleRequest } from '../../shared/tinker/sampling-api.js';
import { tinySizes } from '../support/tiny-model.js';

/** The rollouts that the sampling thread is asked for together, if a client wants 100 of a model of this size. */
async function samplesTogether(intermediateSize: number): Promise<number[]> {
  const config = parseModelConfig(qwen3ConfigText({ ...tinySizes, intermediateSize }), 'config');
  const model = { name: 'base', directory: { path: 'nowhere', config, digest: 'digest' } };
  const counts: number[] = [];
  const sample: SamplingCalls['sample'] = ({ jobs }) => {
    counts.push(...jobs.map(({ count }) => count));
    return Promise.resolve(jobs.map(() => []));
  };
  const call = (_name: string, input: never) => sample(input) as Promise<never>;
  const worker = { depth: 0, call } as unknown as WorkerCalls<SamplingCalls>;
  const futures = new FutureStore<OperationResult>();
  const store = {} as unknown as CheckpointStore; // the base model is in none
  const clients = new Sessions();
  const sessions = new SamplingSessions(model, clients, store, futures, () => worker);
  const { id } = sessions.open(clients.create(), { checkpoint: undefined, isInflight: false }, 0);
  const request = SampleRequest.parse({
    sampling_session_id: id,
    prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4] }] },
    sampling_params: { max_tokens: 2 },
    num_samples: 100,
  });
  const outcome = await futures.wait(
    sessions.sample(request),
    60_000,
    new AbortController().signal,
  );
  assert(outcome?.isOk);
  return counts;
}

describe('the sampling sessions of the local backend', () => {
  it('the backend samples at most 64 rollouts of a large model together, and more of a small one', async () => {
    assert.deepEqual(await samplesTogether(24), [100]);
    assert.deepEqual(await samplesTogether(172_000), [64, 36]);
  });
});
