import {
  ClientConfigRequest,
  CreateSessionRequest,
  FinishSessionRequest,
  SessionHeartbeatRequest,
} from '../shared/tinker/api.js';
import {
  CreateSamplingSessionRequest,
  JoinSamplingSessionRequest,
  SampleRequest,
} from '../shared/tinker/sampling-api.js';
import { promptLogprobs, scoresAlone } from '../shared/tinker/capability-probe.js';
import { type BodyBounds, jsonReply, readJson, readPage, type Route } from './http-api.js';
import type { SamplingSessions } from './sampling-sessions.js';
import type { ServedModel } from './served-model.js';
import type { Sessions } from './sessions.js';

/** Routes for discovery and sessions. @param end ends a session with all that it holds. */
export function sessionRoutes(
  model: ServedModel,
  sessions: Sessions,
  end: (sessionId: string) => void,
): Route[] {
  return [
    {
      method: 'GET',
      path: '/api/v1/healthz',
      access: 'open',
      handle: () => jsonReply(200, { status: 'ok' }),
    },
    {
      method: 'GET',
      path: '/api/v1/get_server_capabilities',
      access: 'sampling',
      handle: () =>
        jsonReply(200, {
          supported_models: [
            {
              model_name: model.name,
              max_context_length: model.directory.config.maxPositions,
              capabilities: ['training', 'sampling', promptLogprobs, scoresAlone],
              trainable: true,
              sampleable: true,
            },
          ],
        }),
    },
    {
      method: 'POST',
      path: '/api/v1/client/config',
      access: 'sampling',
      async handle(request) {
        await readJson(request, ClientConfigRequest);
        return jsonReply(200, clientConfig);
      },
    },
    {
      method: 'POST',
      path: '/api/v1/client/dynamic_config',
      access: 'sampling',
      handle: () => jsonReply(200, { refresh_interval_sec: 300, sample_cancel_enabled: true }),
    },
    {
      method: 'POST',
      path: '/api/v1/create_session',
      access: 'sampling',
      async handle(request) {
        const { user_metadata, display_name } = await readJson(request, CreateSessionRequest);
        // Not kept for the sampling key: it cannot read them, and its many clients could fill the memory.
        const canTrain = request.access === 'all';
        const about = canTrain ? { user_metadata, display_name } : {};
        return jsonReply(201, {
          type: 'create_session',
          session_id: sessions.create(about).id,
          info_message: canTrain ? untrainedHead : null,
          warning_message: null,
          error_message: null,
        });
      },
    },
    {
      method: 'POST',
      path: '/api/v1/session_heartbeat',
      access: 'sampling',
      async handle(request) {
        sessions.get((await readJson(request, SessionHeartbeatRequest)).session_id);
        return jsonReply(200, { type: 'session_heartbeat' });
      },
    },
    {
      method: 'GET',
      path: '/api/v1/sessions',
      handle({ query }) {
        const { limit, offset } = readPage(query, 20);
        return jsonReply(200, { sessions: sessions.list().slice(offset, offset + limit) });
      },
    },
    {
      method: 'GET',
      path: '/api/v1/sessions/:id',
      handle({ params: [id] }) {
        const { trainingRuns, samplers, about } = sessions.peek(id!);
        return jsonReply(200, {
          training_run_ids: trainingRuns,
          sampler_ids: [...samplers],
          user_metadata: about.user_metadata ?? null,
          display_name: about.display_name ?? null,
        });
      },
    },
    {
      method: 'POST',
      path: '/api/v1/sessions/:id/finish',
      access: 'sampling', // by its unguessable id
      async handle(request) {
        await readJson(request, FinishSessionRequest);
        end(request.params[0]!);
        return { status: 204, headers: {}, body: '' };
      },
    },
    {
      method: 'POST',
      path: '/api/v1/telemetry',
      access: 'sampling',
      async handle(request) {
        await request.body(maxTelemetryBytes); // discarded unread: a report may contain the client's API key
        return jsonReply(200, { status: 'accepted' });
      },
    },
  ];
}

/** The SDK's default asks to train it, so it cannot be refused. SDKs log this. */
const untrainedHead = 'train_unembed has no effect here: the output head is not adapted';

/** Small, since a client with the sampling key may send this much on many connections at once. */
const maxTelemetryBytes = 4 * 2 ** 20;

/** TuFT's values; two flags that make SDKs before 0.25 send protobuf; what SDK 0.38 asks before it does it. */
const clientConfig = {
  pjwt_auth_enabled: false,
  credential_default_source: 'api_key',
  sample_dispatch_bytes_semaphore_size: 10_485_760,
  inflight_response_bytes_semaphore_size: 52_428_800,
  parallel_fwdbwd_chunks: false,
  proto_write_fwdbwd: true,
  fwd_via_fwdbwd: true,
  sample_join_sampling_session: true,
  sample_use_retrieve_futures: true,
  custom_loss_server_side: true,
};

/** Limits of a body with a prompt: a million tokens. */
const promptBody: BodyBounds = { bytes: 2 ** 23, values: 1_100_000, containers: 5_000, depth: 32 };

/** Routes for sampling sessions and sampling. */
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
      path: '/api/v1/join_sampling_session',
      access: 'sampling',
      async handle(request) {
        const body = await readJson(request, JoinSamplingSessionRequest);
        const client_counter = ++samplers.get(body.sampling_session_id).joined;
        return jsonReply(200, { type: 'join_sampling_session', client_counter });
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
          // SDKs since 0.26.2 identify the sequences of the result by these ids.
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
