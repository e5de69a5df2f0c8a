import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { z } from 'zod';
import type { CheckpointStore } from '../../local-backend/checkpoint-store.js';
import { FutureStore } from '../../local-backend/futures.js';
import type { OperationResult } from '../../local-backend/operation-result.js';
import { SamplingSessions } from '../../local-backend/sampling-sessions.js';
import type { SamplingCalls } from '../../local-backend/sampling-worker.js';
import type { Scores, ScoringJob } from '../../local-backend/scored-texts.js';
import { Sessions } from '../../local-backend/sessions.js';
import type { TrainingCalls } from '../../local-backend/training-worker.js';
import { parseModelConfig } from '../../shared/model/model-config.js';
import { qwen3ConfigText } from '../../shared/model/model-writer.js';
import type { WorkerCalls } from '../../shared/service/worker-calls.js';
import { CreateSamplingSessionRequest, SampleRequest } from '../../shared/tinker/sampling-api.js';
import { tinySizes } from '../support/tiny-model.js';
import { never } from '../support/waiting.js';
import { checkpointAbout, unreadDirectory } from './values.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Sampling sessions of a model of this size, whose threads only record what they are asked for. */
function open(intermediateSize: number, startSampler?: () => never) {
  const config = parseModelConfig(qwen3ConfigText({ ...tinySizes, intermediateSize }), 'config');
  const model = { name: 'base', directory: unreadDirectory(config) };
  const calls = { sampled: [] as number[], scored: [] as number[] }; // rollouts, tokens
  const sample: SamplingCalls['sample'] = ({ jobs }) => {
    calls.sampled.push(...jobs.map(({ count }) => count));
    return Promise.resolve(jobs.map(() => []));
  };
  const score = ({ texts, k }: ScoringJob): Promise<Scores[]> => {
    calls.scored.push(...texts.map(({ tokens }) => tokens.length));
    const top = { k, tokens: new Int32Array(), logprobs: new Float32Array() };
    return Promise.resolve(
      texts.map(({ tokens, from }) => ({ logprobs: new Float32Array(tokens.length - from), top })),
    );
  };
  const thread = (own: (input: never) => unknown): unknown => ({
    call: (_name: string, input: never) => own(input),
  });
  const sampler = thread(sample) as WorkerCalls<SamplingCalls>;
  const trainer = thread(score) as WorkerCalls<TrainingCalls>;
  const futures = new FutureStore<OperationResult>();
  const store = {} as unknown as CheckpointStore; // the base model is in none
  const clients = new Sessions();
  const start = startSampler ?? (() => sampler);
  const sessions = new SamplingSessions(model, clients, store, futures, start, trainer);
  const session = clients.create();
  const { id } = sessions.open(session, { checkpoint: undefined, isInflight: false });
  const request = (wanted: Partial<z.input<typeof SampleRequest>>) =>
    SampleRequest.parse({
      sampling_session_id: id,
      prompt: { chunks: [{ type: 'encoded_text', tokens: [3, 4] }] },
      sampling_params: { max_tokens: 2 },
      ...wanted,
    });
  return { sessions, session, futures, calls, request };
}

/** What the threads are asked for, if a client wants this of a model of this size. */
async function callsFor(
  intermediateSize: number,
  wanted: Partial<z.input<typeof SampleRequest>>,
): Promise<{ sampled: number[]; scored: number[] }> {
  const { sessions, futures, calls, request } = open(intermediateSize);
  const outcome = await futures.wait(sessions.sample(request(wanted)), 60_000, never);
  assert(outcome?.isOk);
  return calls;
}

describe('the sampling sessions of the local backend', () => {
  it('the backend samples at most 64 rollouts of a large model together, and more of a small one', async () => {
    assert.deepEqual((await callsFor(24, { num_samples: 100 })).sampled, [100]);
    assert.deepEqual((await callsFor(172_000, { num_samples: 100 })).sampled, [64, 36]);
  });

  it('saved weights are of the served model whatever its chat template, and of no other weights', () => {
    const config = parseModelConfig(qwen3ConfigText(tinySizes), 'config');
    const store = { get: () => checkpointAbout() } as unknown as CheckpointStore;
    const clients = new Sessions();
    const { id } = clients.create();
    const open = (digestWithoutTemplate: string) => {
      const digests = { digest: 'with a template', digestWithoutTemplate };
      const directory = { ...unreadDirectory(config), ...digests };
      const model = { name: 'base', directory };
      const none = undefined as never; // no thread is asked for anything
      const futures = new FutureStore<OperationResult>();
      const sessions = new SamplingSessions(model, clients, store, futures, none, none);
      const request = { session_id: id, model_path: 'tinker://run/sampler_weights/v1' };
      const parsed = CreateSamplingSessionRequest.parse({ ...request, sampling_session_seq_id: 0 });
      return sessions.create(parsed, 'sampling');
    };
    assert.doesNotThrow(() => open('digest'));
    assert.throws(() => open('another'), /was trained on different weights of base/);
  });

  it('the thread that trains scores prompts, since it has the weights', async () => {
    assert.deepEqual(await callsFor(24, { prompt_logprobs: true }), { sampled: [1], scored: [2] });
  });

  it('the thread that samples is not even started for scores alone', async () => {
    const { sessions, futures, calls, request } = open(24, () => assert.fail('it is started'));
    const alone = { prompt_logprobs: true, sampling_params: { max_tokens: 0 } };
    const outcome = await futures.wait(sessions.sample(request(alone)), 60_000, never);
    assert(outcome?.isOk);
    assert.deepEqual(calls, { sampled: [], scored: [2] });
  });

  it('a sample that is done is kept without its request', async () => {
    const { sessions, futures, request } = open(24);
    const begin = () => {
      const asked = request({ seq_id: 1 });
      return { id: sessions.sample(asked), asked: new WeakRef(asked) };
    };
    const { id, asked } = begin();
    assert((await futures.wait(id, 60_000, never))?.isOk);
    await turn(); // a weak reference holds its object until the end of its task
    collect();
    assert.equal(asked.deref(), undefined);
    assert(futures.has(id));
  });

  it('a sample that is sent again has the future of the first, also if another is like it but for its id', () => {
    const { sessions, request } = open(24);
    const ids = [1, 1, 2, 1, undefined, undefined].map((seq_id) =>
      sessions.sample(request({ seq_id })),
    );
    assert.deepEqual([ids[1], ids[3]], [ids[0], ids[0]]);
    assert.equal(new Set(ids).size, 4);
  });

  it('a sampler that is closed is not kept for the request that opened it', async () => {
    const { sessions, session } = open(24);
    const asked = CreateSamplingSessionRequest.parse({
      session_id: session.id,
      sampling_session_seq_id: 0,
      base_model: 'base',
    });
    const begin = () => new WeakRef(sessions.create(asked, 'all'));
    const opened = begin();
    sessions.closeOf(session);
    await turn();
    collect();
    assert.equal(opened.deref(), undefined);
  });
});
