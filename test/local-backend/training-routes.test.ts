import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ApiError } from '../../local-backend/http-api.js';
import { trainingRoutes } from '../../local-backend/training-routes.js';
import type { TrainingOperations } from '../../local-backend/training-operations.js';
import type { TrainingRun, TrainingRuns } from '../../local-backend/training-runs.js';
import { PermanentError } from '../../shared/base/errors.js';
import { jsonForwardBackward } from '../../shared/tinker/operations.js';
import type { ForwardBackwardRequest } from '../../shared/tinker/types.js';
import { sampleRequest as request } from '../support/sample-request.js';

const target = { data: [6, 7, 8], dtype: 'int64', shape: [3] };
const weights = { data: [0, 1, 1], dtype: 'float32', shape: [3] };

/**
 * Posts a JSON body to forward_backward.
 *
 * @returns the request that the route submits as an operation.
 * @throws {PermanentError} the reason with which the route fails the operation.
 * @throws {ApiError} when the route refuses the body.
 */
async function post(body: unknown): Promise<ForwardBackwardRequest> {
  let submitted: ForwardBackwardRequest | undefined;
  let reason: Error | undefined;
  const get = (id: string) => ({ id }) as TrainingRun;
  const runs = { get, find: get } as Partial<TrainingRuns> as TrainingRuns;
  const operations = {
    forwardBackward(_run, decoded) {
      submitted = decoded;
      return 'submitted';
    },
    refuse(_run, _seqId, error) {
      reason = error;
      return 'refused';
    },
  } as Partial<TrainingOperations> as TrainingOperations;
  const route = trainingRoutes(undefined as never, runs, operations).find(
    ({ path }) => path === '/api/v1/forward_backward',
  )!;
  await route.handle({
    headers: { 'content-type': 'application/json' },
    access: 'all',
    query: new URLSearchParams(),
    params: [],
    signal: new AbortController().signal,
    body: () => Promise.resolve(Buffer.from(JSON.stringify(body))),
  });
  if (reason !== undefined) throw reason;
  return submitted!;
}

/** Posts the sample request of §10.3 with the given changes. */
function postSample(change: { inputs?: Record<string, unknown>; loss?: string } = {}) {
  return post({
    forward_backward_input: {
      data: [
        {
          model_input: { chunks: [{ type: 'encoded_text', tokens: [5, 6, 7] }] },
          loss_fn_inputs: { target_tokens: target, weights, ...change.inputs },
        },
      ],
      loss_fn: change.loss ?? 'cross_entropy',
      loss_fn_config: {},
    },
    model_id: 'm1',
    seq_id: 1,
  });
}

const refused = (words: RegExp) => (error: unknown) =>
  error instanceof PermanentError && words.test(error.message);

describe('forward_backward in JSON', () => {
  it('forward_backward reads the sample of the protocol reference', async () => {
    assert.deepEqual(await postSample(), request);
  });

  it('forward_backward reads what our own client writes', async () => {
    assert.deepEqual(await post(jsonForwardBackward(request).body.json), request);
  });

  it('forward_backward reads a tensor without a shape as a vector', async () => {
    const { data, dtype } = target;
    assert.deepEqual(await postSample({ inputs: { target_tokens: { data, dtype } } }), request);
  });

  it('forward_backward refuses a tensor that is not a dense vector, and names its datum and array', async () => {
    const twoTargets = { data: [5, 6, 7, 8, 9, 10], dtype: 'int64', shape: [3, 2] };
    await assert.rejects(
      postSample({ inputs: { target_tokens: twoTargets } }),
      refused(/datum 0: target_tokens: shape \[3, 2\] for 6 elements, not 1-D/),
    );
    const sparse = { ...weights, sparse_crow_indices: [0, 3], sparse_col_indices: [0, 1, 2] };
    await assert.rejects(
      postSample({ inputs: { weights: sparse } }),
      refused(/datum 0: weights: expected a dense tensor/),
    );
  });

  it('forward_backward refuses a target that is no token id, and names its place', async () => {
    for (const wrong of [2 ** 32 + 5, 2 ** 31, -1, 1.5]) {
      await assert.rejects(
        postSample({ inputs: { target_tokens: { ...target, data: [5, 6, wrong] } } }),
        refused(/datum 0: element 2 of target_tokens is \S+, which is no token id/),
      );
    }
  });

  it('forward_backward refuses a clip threshold for each token', async () => {
    await assert.rejects(
      postSample({ inputs: { clip_low_threshold: weights }, loss: 'ppo' }),
      refused(/loss_fn_inputs\.clip_low_threshold is an array: send one number .* loss_fn_config/),
    );
  });

  it('forward_backward refuses an unknown loss and lists the supported ones', async () => {
    await assert.rejects(postSample({ loss: 'dpo' }), refused(/loss_fn is "dpo", expected .*ppo/));
  });

  it('forward_backward reports one violation for an array of any length', async () => {
    const wrong = Array<string>(100_000).fill('x');
    const violations = async (inputs: Record<string, unknown>) => {
      const error: unknown = await postSample({ inputs }).catch((caught: unknown) => caught);
      assert(error instanceof ApiError && typeof error.detail !== 'string');
      return error.detail;
    };
    const [only, ...others] = await violations({ weights: { ...weights, data: wrong } });
    assert.equal(only!.loc.slice(-3).join('.'), 'loss_fn_inputs.weights.data');
    assert.equal(only!.msg, 'element 0 of 100000 is not a number');
    assert.deepEqual(others, []);
    const names = Object.fromEntries(wrong.map((name, i) => [`${name}${i}`, 1]));
    assert.deepEqual(
      (await violations(names)).map(({ msg }) => msg),
      ['expected at most 16 keys'],
    );
  });
});
