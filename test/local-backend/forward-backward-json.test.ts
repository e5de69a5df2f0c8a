import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodeJsonForwardBackward } from '../../local-backend/forward-backward-json.js';
import { ForwardBackwardJsonRequest } from '../../shared/tinker/api.js';
import { PermanentError } from '../../shared/base/errors.js';
import { jsonForwardBackward } from '../../shared/tinker/operations.js';
import { sampleRequest as request } from '../support/sample-request.js';

const target = { data: [6, 7, 8], dtype: 'int64', shape: [3] };
const weights = { data: [0, 1, 1], dtype: 'float32', shape: [3] };

/** Decodes §10.3's request, changed where it is told. */
function decode(change: { inputs?: Record<string, unknown>; loss?: string } = {}) {
  const body = ForwardBackwardJsonRequest.parse({
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
  return decodeJsonForwardBackward(body, body.forward_backward_input, false);
}

const refused = (words: RegExp) => (error: unknown) =>
  error instanceof PermanentError && words.test(error.message);

describe('forward_backward in JSON', () => {
  it('reads the sample of the protocol reference', () => {
    assert.deepEqual(decode(), request);
  });

  it('reads what our own client writes', () => {
    const { json } = jsonForwardBackward(request).body;
    const body = ForwardBackwardJsonRequest.parse(JSON.parse(JSON.stringify(json)));
    const decoded = decodeJsonForwardBackward(body, body.forward_backward_input, false);
    assert.deepEqual(decoded, request);
  });

  it('takes a tensor without a shape for a vector', () => {
    const { data, dtype } = target;
    assert.deepEqual(decode({ inputs: { target_tokens: { data, dtype } } }), request);
  });

  it('refuses what is no vector, naming datum and array', () => {
    const twoTargets = { data: [5, 6, 7, 8, 9, 10], dtype: 'int64', shape: [3, 2] };
    assert.throws(
      () => decode({ inputs: { target_tokens: twoTargets } }),
      refused(/datum 0: target_tokens: shape \[3, 2\] for 6 elements, not 1-D/),
    );
    const sparse = { ...weights, sparse_crow_indices: [0, 3], sparse_col_indices: [0, 1, 2] };
    assert.throws(
      () => decode({ inputs: { weights: sparse } }),
      refused(/datum 0: weights: expected a dense tensor/),
    );
  });

  it('refuses an unknown loss, naming those that there are', () => {
    assert.throws(() => decode({ loss: 'dpo' }), refused(/loss_fn is "dpo", expected .*ppo/));
  });

  it('complains once about an array of any length', () => {
    const wrong = Array<string>(100_000).fill('x');
    const complaints = (inputs: Record<string, unknown>) => {
      try {
        decode({ inputs });
      } catch (error) {
        return (error as { issues: { path: unknown[]; message: string }[] }).issues;
      }
      throw new Error('was accepted');
    };
    const [only, ...others] = complaints({ weights: { ...weights, data: wrong } });
    assert.equal(only!.path.slice(-3).join('.'), 'loss_fn_inputs.weights.data');
    assert.equal(only!.message, 'element 0 of 100000 is not a number');
    assert.deepEqual(others, []);
    const names = Object.fromEntries(wrong.map((name, i) => [`${name}${i}`, 1]));
    assert.deepEqual(
      complaints(names).map(({ message }) => message),
      ['expected at most 16 keys'],
    );
  });
});
