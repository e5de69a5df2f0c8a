/** The JSON bodies of the Tinker HTTP API for sampling and for the results of all operations; see api.ts for the rest. */
import { z } from 'zod';
import {
  anyNumbers,
  closed,
  count,
  kind,
  optional,
  TextChunks,
  tokenIds,
  wideInteger,
} from './api-fields.js';

/** `POST /api/v1/create_sampling_session` */
export const CreateSamplingSessionRequest = closed({
  type: kind('create_sampling_session'),
  session_id: z.string(),
  sampling_session_seq_id: optional(z.int()),
  base_model: optional(z.string()),
  model_path: optional(z.string()),
});
export const CreateSamplingSessionResponse = z.object({ sampling_session_id: z.string().min(1) });

/** `POST /api/v1/join_sampling_session`: a copy of a sampling client asks for its number */
export const JoinSamplingSessionRequest = closed({
  type: kind('join_sampling_session'),
  sampling_session_id: z.string(),
});

/** Bounded, since it is kept while a request waits, and a thousand requests may wait. */
const StopText = z.string().max(1_024);

/** `POST /api/v1/asample` → a future of SampleJsonResult, or of the protobuf SampleResponse */
export const SampleRequest = closed({
  type: kind('sample'),
  num_samples: z.int().positive().default(1),
  prompt: z.object({
    chunks: TextChunks,
  }),
  sampling_params: closed({
    max_tokens: optional(z.int().nonnegative()), // 0, to score a prompt alone, at the local backend only
    seed: optional(wideInteger),
    stop: optional(z.union([StopText, z.array(StopText).max(256), z.array(z.int()).max(256)])),
    temperature: z.number().nonnegative().default(1),
    top_k: z.int().default(-1),
    top_p: z.number().default(1),
  }),
  sampling_session_id: optional(z.string()),
  seq_id: optional(wideInteger), // a pickled client sends at least 10^9 times a random number
  base_model: optional(z.string()),
  model_path: optional(z.string()),
  prompt_logprobs: optional(z.boolean()),
  prompt_logprobs_last_n: optional(z.int().positive()),
  topk_prompt_logprobs: count.default(0),
  topk_sample_logprobs: optional(count), // no default: servers of SDK 0.25 refuse the field
});
export const SampleJsonResult = z.object({
  sequences: z
    .array(
      z.object({
        stop_reason: z.enum(['stop', 'length']),
        tokens: tokenIds,
        logprobs: anyNumbers,
      }),
    )
    .max(65_536),
  prompt_logprobs: optional(anyNumbers),
});

/** `POST /api/v1/retrieve_future`: a result, or one of the three answers below it */
export const RetrieveFutureRequest = z.object({
  request_id: z.string(),
  allow_metadata_only: z.boolean().default(false),
});
export const TryAgain = z.object({
  type: z.literal('try_again'),
  request_id: optional(z.string()),
  queue_state: optional(z.string()), // active, paused_capacity, paused_rate_limit
  queue_state_reason: optional(z.string()),
});
export const CompleteMetadata = z.object({ status: z.literal('complete_metadata') });
export const FailedFuture = z.object({
  error: z.string(),
  category: z.enum(['unknown', 'server', 'user']).catch('unknown'),
});

/** `POST /api/v1/cancel_future`, whose answer is empty */
export const CancelFutureRequest = z.object({ request_id: z.string() });

/** Copies of a sampling client number their requests from different multiples of this. */
export const requestsOfAClient = 1_000_000_000;
/** Ids of retrieved results in one request. */
export const maxRetrieved = 4_096;

/** `POST /api/v1/retrieve_futures`: which futures of a sampling client have settled, for SDKs since 0.38 */
export const RetrieveFuturesRequest = closed({
  target: closed({
    type: kind('sampling_session'),
    sampling_session_id: z.string(),
    cloned_sampler_id: count.default(0),
  }),
  prev_cursor: count.default(0), // of the previous answer
  timeout: optional(z.number().nonnegative()), // seconds
  retrieved_request_ids: z.array(z.string()).max(maxRetrieved).default([]), // whose results the client has
});
export const RetrieveFuturesResponse = z.object({
  completions: z.array(z.object({ request_id: z.string() })).max(65_536),
  cursor: count,
});
