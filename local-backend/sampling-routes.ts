import { CreateSamplingSessionRequest, SampleRequest } from '../shared/tinker/api.js';
import { jsonReply, readJson, type BodyBounds, type Route } from './http-api.js';
import type { SamplingSessions } from './sampling-sessions.js';
import type { ServedModel } from './served-model.js';

/** Of a body with a prompt: a million tokens. */
const promptBody: BodyBounds = { bytes: 2 ** 23, values: 1_100_000, containers: 5_000, depth: 32 };

/** Sampling sessions and sampling. */
export function samplingRoutes(model: ServedModel, samplers: SamplingSessions): Route[] {
  return [
    {
      method: 'POST',
      path: '/api/v1/create_sampling_session',
      access: 'sampling',
      async handle(request) {
        const sampler = samplers.create(
          await readJson(request, CreateSamplingSessionRequest),
          request.access,
        );
        return jsonReply(201, {
          type: 'create_sampling_session',
          sampling_session_id: sampler.id,
        });
      },
    },
    {
      method: 'POST',
      path: '/api/v1/asample',
      access: 'sampling',
      async handle(request) {
        const body = await readJson(request, SampleRequest, promptBody);
        const requestId = samplers.sample(body);
        return jsonReply(202, {
          request_id: requestId,
          model_id: null,
          // SDKs from 0.26.2 on name each sequence of the result by these.
          sample_sequence_ids: Array.from(
            { length: body.num_samples },
            (_, i) => `${requestId}#${i}`,
          ),
        });
      },
    },
    {
      method: 'GET',
      path: '/api/v1/samplers/:id',
      access: 'sampling',
      handle({ params: [id] }) {
        const sampler = samplers.get(id!);
        return jsonReply(200, {
          sampler_id: sampler.id,
          base_model: model.name,
          model_path: samplers.tinkerPathOf(sampler),
        });
      },
    },
  ];
}
