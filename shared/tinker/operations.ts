import type { z } from 'zod';
import type { AdamParams } from '../rl/adam-params.js';
import type { Carrier } from '../rl/carried-loss.js';
import { type Datum, datumInputs } from '../rl/datum.js';
import type { LossName } from '../rl/losses.js';
import type { Answer } from './answer.js';
import {
  LoadWeightsRequest,
  OptimStepRequest,
  SaveWeightsExternalRequest,
  SaveWeightsForSamplerRequest,
  SaveWeightsRequest,
  type ForwardBackwardJsonRequest,
} from './api.js';
import type { ChunkLimits } from './chunks.js';
import { encodeForwardBackwardRequest } from './codec.js';
import {
  forwardBackwardType,
  loadType,
  optimStepType,
  saveExternalType,
  saveForSamplerType,
  saveStateType,
} from './result-types.js';
import type { SequencedOperation } from './submission-queue.js';
import type { ForwardBackwardRequest, ForwardBackwardResult } from './types.js';

/** Protocol settings of a server, shared by all runs of a client. */
export interface Dialect {
  readonly chunks: ChunkLimits;
  /** Whether one poll answers for all samples of a client. */
  readonly pollsTogether: boolean;
  /** Whether it scores a prompt without drawing a token; others must draw at least one. */
  readonly drawsNone: boolean;
  /** Becomes false once the server turns out to have no way to cancel a sample. */
  cancelsSamples: boolean;
  /** Becomes true once the server refuses protobuf, as servers older than SDK 0.25 do. */
  isJsonOnly: boolean;
  /** The losses that the server lacks, and those that carry them. */
  readonly carriers: Map<LossName, Carrier>;
}

/** A forward_backward, or only forward, of one chunk of data. */
export function pass(
  what: Omit<ForwardBackwardRequest, 'seqId'>,
  dialect: Dialect,
): SequencedOperation<ForwardBackwardResult> {
  return {
    name: what.isForwardOnly ? 'forward' : 'forward_backward',
    type: forwardBackwardType,
    request: (seqId) => {
      const request = { ...what, seqId };
      return dialect.isJsonOnly
        ? jsonForwardBackward(request)
        : {
            path: '/api/v1/forward_backward',
            body: { protobuf: encodeForwardBackwardRequest(request) },
          };
    },
    adapt: (refusal) => {
      if (dialect.isJsonOnly || !refusesProtobuf(refusal)) return false;
      dialect.isJsonOnly = true;
      return true;
    },
    // The gradients were accumulated and the weights are unchanged, since nothing is sent after an operation in
    // doubt: a forward pass returns the lost result without changing gradients.
    afterLoss: () => ({ operation: pass({ ...what, isForwardOnly: true }, dialect) }),
  };
}

/** A forward pass of two tokens; `count` is a weight, by which one can be told from another. */
export function sequenceProbe(
  modelId: string,
  count: number,
  dialect: Dialect,
): SequencedOperation<unknown> {
  const tokens = Int32Array.of(0, 0);
  const inputs = { weights: Float32Array.of(0, count) };
  const data = [{ tokens, targetTokens: tokens, inputs }];
  const what = { modelId, data, loss: 'cross_entropy', config: {}, isForwardOnly: true } as const;
  return pass(what, dialect);
}

export function optimStep(
  modelId: string,
  adam: AdamParams,
): SequencedOperation<Record<string, number>> {
  const adam_params = {
    learning_rate: adam.learningRate,
    beta1: adam.beta1,
    beta2: adam.beta2,
    eps: adam.eps,
    weight_decay: adam.weightDecay,
    grad_clip_norm: adam.gradClipNorm,
  };
  return {
    name: 'optim_step',
    type: optimStepType,
    request: (seq_id) => ({
      path: '/api/v1/optim_step',
      body: { json: OptimStepRequest.parse({ adam_params, model_id: modelId, seq_id }) },
    }),
    afterLoss: () => ({ value: {} }), // only its metrics are lost
  };
}

/**
 * Saves adapter and optimizer under a name; idempotent.
 *
 * @param whenMade see {@link SequencedOperation}; only where no earlier save had the name.
 */
export function saveState(
  modelId: string,
  name: string,
  whenMade?: () => Promise<string>,
): SequencedOperation<string> {
  const operation: SequencedOperation<string> = {
    name: 'save_weights',
    type: saveStateType,
    request: (seq_id) => ({
      path: '/api/v1/save_weights',
      body: { json: SaveWeightsRequest.parse({ model_id: modelId, path: name, seq_id }) },
    }),
    afterLoss: () => ({ operation }),
    ...(whenMade && { whenMade }),
  };
  return operation;
}

/** Saves only the adapter under a name; otherwise like `saveState`. */
export function saveWeightsForSampler(
  modelId: string,
  name: string,
  whenMade?: () => Promise<string>,
): SequencedOperation<string> {
  const operation: SequencedOperation<string> = {
    name: 'save_weights_for_sampler',
    type: saveForSamplerType,
    request: (seq_id) => ({
      path: '/api/v1/save_weights_for_sampler',
      body: { json: SaveWeightsForSamplerRequest.parse({ model_id: modelId, path: name, seq_id }) },
    }),
    afterLoss: () => ({ operation }),
    ...(whenMade && { whenMade }),
  };
  return operation;
}

/** Saves only the adapter under a name, in files to download; idempotent. */
export function saveWeightsExternal(modelId: string, name: string): SequencedOperation<string> {
  const operation: SequencedOperation<string> = {
    name: 'save_weights_external',
    type: saveExternalType,
    request: (seq_id) => ({
      path: '/api/v1/save_weights_external',
      body: { json: SaveWeightsExternalRequest.parse({ model_id: modelId, path: name, seq_id }) },
    }),
    afterLoss: () => ({ operation }),
  };
  return operation;
}

export function loadState(
  modelId: string,
  path: string,
  hasOptimizer: boolean,
): SequencedOperation<unknown> {
  return {
    name: 'load_weights',
    type: loadType,
    request: (seq_id) => ({
      path: '/api/v1/load_weights',
      body: {
        json: LoadWeightsRequest.parse({
          model_id: modelId,
          seq_id,
          path,
          optimizer: hasOptimizer,
        }),
      },
    }),
    afterLoss: () => ({ value: undefined }),
  };
}

/**
 * Whether a JSON-only server refused a protobuf body: 415, or FastAPI's validation error for a body that it
 * parsed as JSON.
 */
function refusesProtobuf(refusal: Answer): boolean {
  if (refusal.status === 415) return true;
  if (refusal.status === 400) return /parsing the body/i.test(refusal.failure.detail);
  return refusal.status === 422 && /"loc":\s*\[\s*"body"/.test(refusal.failure.detail);
}

type Input = z.input<typeof ForwardBackwardJsonRequest>['forward_backward_input'];

/**
 * Builds the path and body of a forward or forward_backward in JSON, for servers that predate protobuf.
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
  for (const name of datumInputs) {
    const values = datum.inputs[name];
    if (values) inputs[name] = { data: [...values], dtype: 'float32', shape };
  }
  return {
    model_input: { chunks: [{ type: 'encoded_text', tokens: [...datum.tokens] }] },
    loss_fn_inputs: inputs,
  };
}
