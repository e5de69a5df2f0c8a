import type { z } from 'zod';
import type { ForwardBackwardJsonRequest } from './api.js';
import type { Datum } from '../rl/datum.js';
import { lossInputs } from '../rl/losses.js';
import type { ForwardBackwardRequest } from './types.js';

type Input = z.input<typeof ForwardBackwardJsonRequest>['forward_backward_input'];

/**
 * The path and body of a forward or forward_backward in the JSON form, for servers older than the
 * protobuf one.
 *
 * Source: §10.3 of the protocol reference (SDK up to 0.24).
 */
export function jsonForwardBackward(request: ForwardBackwardRequest): {
  path: string;
  body: { json: unknown };
} {
  const input: Input = {
    data: request.data.map(toJsonDatum),
    loss_fn: request.loss,
    loss_fn_config: { ...request.config },
  };
  const address = { model_id: request.modelId, seq_id: request.seqId };
  return request.isForwardOnly
    ? { path: '/api/v1/forward', body: { json: { forward_input: input, ...address } } }
    : {
        path: '/api/v1/forward_backward',
        body: { json: { forward_backward_input: input, ...address } },
      };
}

function toJsonDatum(datum: Datum): Input['data'][number] {
  const shape = [datum.tokens.length];
  const inputs: Input['data'][number]['loss_fn_inputs'] = {
    target_tokens: { data: [...datum.targetTokens], dtype: 'int64', shape },
  };
  for (const name of lossInputs) {
    const values = datum.inputs[name];
    if (values) inputs[name] = { data: [...values], dtype: 'float32', shape };
  }
  return {
    model_input: { chunks: [{ type: 'encoded_text', tokens: [...datum.tokens] }] },
    loss_fn_inputs: inputs,
  };
}
