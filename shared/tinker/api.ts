/**
 * The JSON bodies of the Tinker HTTP API, compared with SDK 0.25 and 0.38 (test/compat/sdk/known-protocol.json):
 * one schema each, for the client and for the embedded server. Unknown fields of an answer are ignored, since newer
 * servers add some; those of a `closed` request are refused by name. A client sends what a schema's `parse`
 * returns, with explicit defaults, as the SDK does.
 */
import { z } from 'zod';
import {
  anyNumber,
  anyNumbers,
  closed,
  count,
  few,
  finiteNumbers,
  kind,
  optional,
  tokenIds,
  TextChunks,
  wideInteger,
} from './api-fields.js';
import { requestLimits } from './wire-bounds.js';

/** The optimizer of a run, which SDKs since 0.38 name when they create it. */
const OptimizerConfig = z.looseObject({}).superRefine((config, context) => {
  const text = JSON.stringify(config);
  if (text === '{"type":"adamw"}') return;
  const message = `optimizer_config is ${text.slice(0, 80)}: only {"type":"adamw"} runs here; choose AdamOptimizerConfig`;
  context.addIssue({ code: 'custom', message });
});

/** The user's notes. They are read back as text, so another value becomes its JSON. */
export const UserMetadata = z
  .record(z.string(), z.unknown())
  .transform((notes): Record<string, string> =>
    Object.fromEntries(
      Object.entries(notes).map(([key, value]) => [
        key,
        typeof value === 'string' ? value : JSON.stringify(value),
      ]),
    ),
  );

/** How long a checkpoint is kept, at most ten years. */
const ttlSeconds = z.int().positive().max(315_576_000);

/** `POST /api/v1/client/config` */
export const ClientConfigRequest = z.object({ sdk_version: z.string() });
export const ClientConfigResponse = z.object({
  pjwt_auth_enabled: z.boolean().default(false),
  parallel_fwdbwd_chunks: z.boolean().default(true),
  fwdbwd_max_chunk_len: z.int().positive().default(1024), // datums a request
  fwdbwd_max_chunk_bytes_count: z.int().positive().default(5_000_000), // estimated bytes a request
  billing_exception_max_pause_duration_sec: z.number().nonnegative().default(3600),
  sample_use_retrieve_futures: z.boolean().default(false),
});
export type ClientConfigResponse = z.output<typeof ClientConfigResponse>;

/** `POST /api/v1/auth/token` */
export const AuthTokenResponse = z.object({ jwt: z.string().min(1) });

/** `GET /api/v1/get_server_capabilities` */
export const ServerCapabilities = z.object({
  supported_models: z.array(
    z.object({
      model_name: optional(z.string()),
      max_context_length: optional(z.int().positive()),
      capabilities: optional(z.array(z.string())), // TuFT's: training, sampling
      trainable: optional(z.boolean()), // the hosted service's, since SDK 0.38
      sampleable: optional(z.boolean()),
    }),
  ),
});

/** `POST /api/v1/create_session` */
export const CreateSessionRequest = z.object({
  type: kind('create_session'),
  tags: z.array(z.string()).max(1_000),
  user_metadata: optional(UserMetadata),
  sdk_version: z.string(),
  project_id: optional(z.string()),
  display_name: optional(z.string()),
});
export type CreateSessionRequest = z.output<typeof CreateSessionRequest>;
export const CreateSessionResponse = z.object({
  session_id: z.string().min(1),
  info_message: optional(z.string()),
  warning_message: optional(z.string()),
  error_message: optional(z.string()),
});

/** `POST /api/v1/sessions/{id}/finish`, whose answer is empty */
export const FinishSessionRequest = closed({
  reason: closed({ type: z.enum(['success', 'errored', 'interrupted']) }),
  detail: optional(z.string()),
});

/** `POST /api/v1/session_heartbeat` */
export const SessionHeartbeatRequest = z.object({
  type: kind('session_heartbeat'),
  session_id: z.string(),
});

/** The id of a future result, to be fetched by `retrieve_future`. */
export const UntypedFuture = z.object({
  request_id: z.string().min(1),
  model_id: optional(z.string()),
});

const GraphNode = closed({
  op: z.string(),
  name: z.string(),
  target: z.string(),
  args: z.array(z.unknown()).default([]),
  kwargs: z.record(z.string(), z.unknown()).default({}),
});

/** `POST /api/v1/create_custom_loss` → a future of `{loss_id}`: a loss of one datum as torch.fx traced it */
export const CreateCustomLossRequest = closed({
  type: kind('create_custom_loss'),
  session_id: z.string(),
  custom_loss_seq_id: count,
  name: z.string().max(256),
  inputs: z.array(closed({ name: z.string(), rank: z.literal([0, 1, 2]) })).max(16),
  graph: closed({ format: z.literal(1), nodes: z.array(GraphNode).max(1_000) }),
});
export type CustomLoss = Pick<
  z.output<typeof CreateCustomLossRequest>,
  'name' | 'inputs' | 'graph'
>;

/** `POST /api/v1/create_model` → a future of ModelResult */
export const LoraConfig = closed({
  rank: z.int().positive(),
  seed: optional(wideInteger),
  train_unembed: z.boolean().default(true),
  train_mlp: z.boolean().default(true),
  train_attn: z.boolean().default(true),
});
export const CreateModelRequest = closed({
  type: kind('create_model'),
  session_id: z.string(),
  model_seq_id: count,
  base_model: z.string(),
  user_metadata: optional(UserMetadata),
  lora_config: optional(LoraConfig),
  optimizer_config: optional(OptimizerConfig),
});
export const ModelResult = z.object({ model_id: z.string().min(1) });

/** `POST /api/v1/get_info` and `POST /api/v1/unload_model` */
export const GetInfoRequest = z.object({ type: kind('get_info'), model_id: z.string() });
export const UnloadModelRequest = z.object({ type: kind('unload_model'), model_id: z.string() });
export const ModelInfo = z.object({
  model_id: z.string(),
  model_name: optional(z.string()),
  is_lora: optional(z.boolean()),
  lora_rank: optional(z.int().positive()),
  model_data: z.object({
    arch: optional(z.string()),
    model_name: optional(z.string()),
    tokenizer_id: optional(z.string()),
  }),
});

/** The JSON form of forward_backward and forward, spoken up to SDK 0.24: §10.3 of the reference. */
const JsonTensor = z.object({
  data: finiteNumbers,
  dtype: z.enum(['float32', 'int64']),
  shape: optional(tokenIds),
  sparse_crow_indices: optional(tokenIds), // both only for a sparse tensor
  sparse_col_indices: optional(tokenIds),
});
export type JsonTensor = z.output<typeof JsonTensor>;
const ForwardBackwardInput = z.object({
  data: z
    .array(
      z.object({
        model_input: z.object({ chunks: TextChunks }),
        loss_fn_inputs: few(JsonTensor, 16),
      }),
    )
    .max(requestLimits.parts['ForwardBackwardRequest.data']!),
  loss_fn: z.string(),
  loss_fn_config: optional(few(z.number(), 64)),
});
export const ForwardBackwardJsonRequest = z.object({
  forward_backward_input: ForwardBackwardInput,
  model_id: z.string(),
  seq_id: z.int(),
});
export const ForwardJsonRequest = z.object({
  forward_input: ForwardBackwardInput,
  model_id: z.string(),
  seq_id: z.int(),
});
export const ForwardBackwardJsonResult = z.object({
  loss_fn_output_type: z.string().default(''),
  loss_fn_outputs: z.array(few(z.object({ data: anyNumbers }), 16)).max(65_536),
  metrics: optional(z.record(z.string(), anyNumber)),
});

/** `POST /api/v1/optim_step` → a future of OptimStepResult. The defaults are the SDK's. */
export const OptimStepRequest = closed({
  type: kind('optim_step'),
  adam_params: closed({
    learning_rate: z.number().default(1e-4),
    beta1: z.number().default(0.9),
    beta2: z.number().default(0.95),
    eps: z.number().default(1e-12),
    weight_decay: z.number().default(0),
    grad_clip_norm: z.number().default(0),
  }),
  model_id: z.string(),
  seq_id: optional(z.int()),
});
export const OptimStepResult = z.object({
  metrics: optional(z.record(z.string(), anyNumber)),
});

/** `POST /api/v1/save_weights` → a future of SaveResult; `path` is a bare name. */
export const SaveWeightsRequest = closed({
  type: kind('save_weights'),
  model_id: z.string(),
  path: optional(z.string()),
  seq_id: optional(z.int()),
  ttl_seconds: optional(ttlSeconds),
  overwrite: optional(z.boolean()),
  user_metadata: optional(UserMetadata),
});

/** `POST /api/v1/save_weights_for_sampler` → a future of SaveResult: named or for one session. */
export const SaveWeightsForSamplerRequest = closed({
  type: kind('save_weights_for_sampler'),
  model_id: z.string(),
  path: optional(z.string()),
  sampling_session_seq_id: optional(z.int()),
  kind: optional(z.enum(['snapshot', 'inflight'])),
  seq_id: optional(z.int()),
  ttl_seconds: optional(ttlSeconds),
  user_metadata: optional(UserMetadata),
});

/** `POST /api/v1/save_weights_external` → a future of SaveResult; `path` is a bare name. */
export const SaveWeightsExternalRequest = closed({
  type: kind('save_weights_external'),
  model_id: z.string(),
  path: z.string(),
  seq_id: optional(z.int()),
  ttl_seconds: optional(ttlSeconds),
});
export const SaveResult = z.object({
  path: optional(z.string()),
  sampling_session_id: optional(z.string()),
});

/** `POST /api/v1/load_weights` → a future of LoadResult */
export const LoadWeightsRequest = closed({
  type: kind('load_weights'),
  model_id: optional(z.string()), // absent: creates a model, which not every server supports
  seq_id: optional(z.int()),
  session_id: optional(z.string()), // when creating a model, as the next three
  model_seq_id: optional(count),
  base_model: optional(z.string()),
  user_metadata: optional(UserMetadata),
  optimizer_config: optional(OptimizerConfig),
  weights_access_token: optional(z.string()), // of another account's checkpoint: there is one account
  path: z.string(),
  optimizer: z.boolean(),
});
export const LoadResult = z.object({ path: optional(z.string()) });

/** `GET /api/v1/training_runs/{id}/checkpoints?limit=&offset=` */
export const CheckpointList = z.object({
  checkpoints: z.array(
    z.object({
      checkpoint_id: z.string(),
      checkpoint_type: z.enum(['training', 'sampler', 'external']),
      tinker_path: z.string(),
      time: optional(z.string()),
      size_bytes: optional(z.number()),
    }),
  ),
  cursor: optional(z.object({ offset: count, limit: count, total_count: optional(count) })),
});

/** `POST /api/v1/copy_weights`, whose answer is direct */
export const CopyWeightsRequest = closed({
  source_path: z.string(),
  ttl_seconds: optional(ttlSeconds),
  // The owner of the copy, and the key of another account: there is one account.
  destination_project_id: optional(z.string()),
  session_id: optional(z.string()),
  model_seq_id: optional(count),
  weights_access_token: optional(z.string()),
});

/** `PUT …/checkpoints/{id}/ttl`; null: it does not expire */
export const TtlRequest = closed({ ttl_seconds: optional(ttlSeconds) });

/** `GET …/checkpoints/{id}/external_weights_urls` */
export const ExternalWeightsUrls = z.object({
  urls: z.record(z.string(), z.string()), // by the file's path in the checkpoint
  expires: optional(z.string()),
});

/** `GET …/checkpoints/{id}/archive`, the form without a redirect */
export const ArchiveResponse = z.object({ url: z.string().min(1), expires: optional(z.string()) });

/**
 * A server's answer to a bad request: `detail` may be FastAPI's list. Miles and open-rl name it `error`, and
 * open-rl the failure of an operation `error_message`.
 */
export const ErrorResponse = z
  .object({
    detail: optional(z.unknown()),
    error: optional(z.unknown()),
    error_message: optional(z.unknown()),
  })
  .transform(({ detail, error, error_message }) => detail ?? error ?? error_message);
