import { z } from 'zod';
import { PermanentError } from '../shared/base/errors.js';
import { checkData, datumInputs } from '../shared/rl/datum.js';
import type { Reply } from '../shared/service/http-server.js';
import {
  CreateCustomLossRequest,
  CreateModelRequest,
  ForwardBackwardJsonRequest,
  ForwardJsonRequest,
  GetInfoRequest,
  type JsonTensor,
  LoadWeightsRequest,
  OptimStepRequest,
  SaveWeightsExternalRequest,
  SaveWeightsForSamplerRequest,
  SaveWeightsRequest,
  UnloadModelRequest,
} from '../shared/tinker/api.js';
import { isTokenId } from '../shared/tinker/api-fields.js';
import {
  checkInputNames,
  decodeForwardBackwardRequest,
  lossNamed,
} from '../shared/tinker/codec.js';
import type { ForwardBackwardRequest } from '../shared/tinker/types.js';
import { readEnvelope } from '../shared/tinker/wire-bounds.js';
import {
  ApiError,
  type ApiRequest,
  type BodyBounds,
  jsonReply,
  readJson,
  type Route,
} from './http-api.js';
import type { ServedModel } from './served-model.js';
import type { TrainingOperations } from './training-operations.js';
import type { TrainingRun, TrainingRuns } from './training-runs.js';

/** Limits of a body with data: as many data as in protobuf, with about 20 arrays and objects each. */
const dataBody: BodyBounds = {
  bytes: 64 * 2 ** 20,
  values: 8_000_000,
  containers: 330_000,
  depth: 32,
};

const OperationIds = z.object({ model_id: z.string(), seq_id: z.int() });

/** Routes for training runs and their operations. Each POST except get_info returns a future. */
export function trainingRoutes(
  model: ServedModel,
  runs: TrainingRuns,
  operations: TrainingOperations,
): Route[] {
  const futureReply = (requestId: string, modelId: string) =>
    jsonReply(202, { request_id: requestId, model_id: modelId });

  /** A route for an operation whose JSON body names its run. */
  const operation = <Schema extends z.ZodType<{ model_id: string }>>(
    name: string,
    schema: Schema,
    submit: (run: TrainingRun, request: z.output<Schema>) => string,
    bounds?: BodyBounds,
  ): Route => ({
    method: 'POST',
    path: `/api/v1/${name}`,
    async handle(request) {
      const body = await readJson(request, schema, bounds, useSequenceId);
      const run = runs.get(body.model_id);
      return futureReply(submit(run, body), run.id);
    },
  });

  /** A client has used the sequence id of a refused operation: the next one must not wait for it. */
  function useSequenceId(json: unknown, refusal: ApiError): void {
    const { data: ids } = OperationIds.safeParse(json);
    if (ids === undefined) return;
    const run = runs.find(ids.model_id);
    if (run !== undefined) operations.refuse(run, ids.seq_id, refusal);
  }

  async function protobufForwardBackward(request: ApiRequest): Promise<Reply> {
    const bytes = await request.body();
    try {
      const decoded = decodeForwardBackwardRequest(bytes);
      const run = runs.get(decoded.modelId);
      return futureReply(operations.forwardBackward(run, decoded), run.id);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      const { modelId, seqId } = envelopeOf(bytes, error);
      const run = runs.get(modelId);
      return futureReply(operations.refuse(run, seqId, error), run.id);
    }
  }

  function submitJson(
    run: TrainingRun,
    ids: { model_id: string; seq_id: number },
    input: Parameters<typeof decodeJsonForwardBackward>[1],
    isForwardOnly: boolean,
  ): string {
    try {
      const decoded = decodeJsonForwardBackward(ids, input, isForwardOnly);
      return operations.forwardBackward(run, decoded);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      return operations.refuse(run, ids.seq_id, error);
    }
  }

  return [
    {
      method: 'POST',
      path: '/api/v1/create_model',
      async handle(request) {
        const { requestId, modelId } = runs.create(await readJson(request, CreateModelRequest));
        return futureReply(requestId, modelId);
      },
    },
    {
      method: 'POST',
      path: '/api/v1/create_custom_loss',
      async handle(request) {
        const body = await readJson(request, CreateCustomLossRequest);
        const requestId = operations.createCustomLoss(runs.session(body.session_id), body);
        return jsonReply(202, { request_id: requestId, model_id: null });
      },
    },
    {
      method: 'POST',
      path: '/api/v1/get_info',
      async handle(request) {
        const { id, geometry } = runs.get((await readJson(request, GetInfoRequest)).model_id);
        return jsonReply(200, {
          type: 'get_info',
          model_data: {
            arch: model.directory.config.family,
            model_name: model.name,
            tokenizer_id: model.name,
          },
          model_id: id,
          is_lora: true,
          lora_rank: geometry.lora_rank,
          model_name: model.name,
        });
      },
    },
    {
      method: 'POST',
      path: '/api/v1/unload_model',
      async handle(request) {
        const body = await readJson(request, UnloadModelRequest);
        const { requestId, modelId } = runs.unload(body.model_id);
        return futureReply(requestId, modelId);
      },
    },
    {
      method: 'POST',
      path: '/api/v1/forward_backward',
      async handle(request) {
        const type = request.headers['content-type']?.split(';')[0]?.trim();
        if (type === 'application/x-protobuf' || type === 'application/protobuf') {
          return protobufForwardBackward(request);
        }
        const body = await readJson(request, ForwardBackwardJsonRequest, dataBody, useSequenceId);
        const run = runs.get(body.model_id);
        return futureReply(submitJson(run, body, body.forward_backward_input, false), run.id);
      },
    },
    operation(
      'forward',
      ForwardJsonRequest,
      (run, body) => submitJson(run, body, body.forward_input, true),
      dataBody,
    ),
    operation('optim_step', OptimStepRequest, (run, body) => operations.optimStep(run, body)),
    operation('save_weights', SaveWeightsRequest, (run, body) => operations.saveWeights(run, body)),
    operation('save_weights_for_sampler', SaveWeightsForSamplerRequest, (run, body) =>
      operations.saveWeightsForSampler(run, body),
    ),
    operation('save_weights_external', SaveWeightsExternalRequest, (run, body) =>
      operations.saveWeightsExternal(run, body),
    ),
    {
      method: 'POST',
      path: '/api/v1/load_weights',
      async handle(request) {
        const body = await readJson(request, LoadWeightsRequest, undefined, useSequenceId);
        if (body.model_id === undefined) {
          const { requestId, modelId } = operations.createFromState(body);
          return futureReply(requestId, modelId);
        }
        const run = runs.get(body.model_id);
        return futureReply(operations.loadWeights(run, body), run.id);
      },
    },
  ];
}

/** Returns the run and sequence id of a request with invalid content. @throws {ApiError} 422 */
function envelopeOf(bytes: Uint8Array, reason: PermanentError): ReturnType<typeof readEnvelope> {
  try {
    return readEnvelope(bytes);
  } catch {
    throw new ApiError(422, `Invalid protobuf request: ${reason.message}`);
  }
}

/**
 * Decodes the JSON form of forward_backward, which SDKs up to 0.24 send.
 *
 * @throws {PermanentError} with the invalid loss or datum.
 */
function decodeJsonForwardBackward(
  { model_id: modelId, seq_id: seqId }: { model_id: string; seq_id: number },
  input: z.output<typeof ForwardBackwardJsonRequest>['forward_backward_input'],
  isForwardOnly: boolean,
): ForwardBackwardRequest {
  const loss = lossNamed(input.loss_fn);
  const data = input.data.map(({ model_input, loss_fn_inputs: inputs }, i) => {
    checkInputNames(Object.keys(inputs));
    const read = (name: string) => {
      const tensor = inputs[name];
      return tensor && readDense(`datum ${i}: ${name}`, tensor);
    };
    const target = read('target_tokens');
    if (target === undefined) throw new PermanentError(`datum ${i} has no target_tokens`);
    const wrong = target.findIndex((value) => !isTokenId(value));
    if (wrong !== -1) {
      throw new PermanentError(
        `datum ${i}: element ${wrong} of target_tokens is ${target[wrong]}, which is no token id`,
      );
    }
    const present = datumInputs.flatMap((name) => {
      const values = read(name);
      return values === undefined ? [] : [[name, Float32Array.from(values)] as const];
    });
    return {
      tokens: Int32Array.from(model_input.chunks.flatMap(({ tokens }) => tokens)),
      targetTokens: Int32Array.from(target),
      inputs: Object.fromEntries(present),
    };
  });
  checkData(data);
  return { modelId, seqId, data, loss, config: input.loss_fn_config ?? {}, isForwardOnly };
}

function readDense(place: string, tensor: JsonTensor): readonly number[] {
  const { data, shape = [data.length] } = tensor;
  if (tensor.sparse_crow_indices !== undefined || tensor.sparse_col_indices !== undefined) {
    throw new PermanentError(`${place}: expected a dense tensor, found a sparse one`);
  }
  if (shape.length === 1 && shape[0] === data.length) return data;
  const found = `shape [${shape.join(', ')}] for ${data.length} elements`;
  throw new PermanentError(`${place}: ${found}, not 1-D`);
}
