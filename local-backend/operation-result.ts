import {
  encodeForwardBackwardResult,
  encodeSampleResult,
  protobufType,
} from '../shared/tinker/codec.js';
import type { ForwardBackwardResult, SampleResult } from '../shared/tinker/types.js';

/** What the future of an operation brings. */
export type OperationResult =
  | { readonly kind: 'json'; readonly json: Readonly<Record<string, unknown>> }
  | {
      readonly kind: 'forward_backward';
      readonly loss: string;
      readonly result: ForwardBackwardResult;
    }
  | { readonly kind: 'sample'; readonly result: SampleResult };

/** The result as a body: protobuf for the two kinds that have a message, if the client takes it. */
export function encodeResult(
  result: OperationResult,
  takesProtobuf: boolean,
): { type: string; body: Uint8Array | string } {
  if (result.kind === 'json') return jsonBody(result.json);
  if (!takesProtobuf) return jsonBody(asJson(result));
  const body =
    result.kind === 'sample'
      ? encodeSampleResult(result.result)
      : encodeForwardBackwardResult(result.loss, result.result);
  return { type: protobufType, body };
}

export function jsonBody(value: unknown): { type: string; body: string } {
  return { type: 'application/json', body: JSON.stringify(value) };
}

function asJson(result: Exclude<OperationResult, { kind: 'json' }>): unknown {
  if (result.kind === 'forward_backward') {
    const { logprobs, metrics } = result.result;
    return {
      loss_fn_output_type: result.loss,
      loss_fn_outputs: logprobs.map((values) => ({
        logprobs: { data: [...values], dtype: 'float32', shape: [values.length] },
      })),
      metrics,
    };
  }
  const { sequences, promptLogprobs } = result.result;
  return {
    type: 'sample',
    sequences: sequences.map(({ stopReason, tokens, logprobs }) => ({
      stop_reason: stopReason,
      tokens: [...tokens],
      logprobs: [...logprobs],
    })),
    prompt_logprobs:
      promptLogprobs && [...promptLogprobs].map((value) => (Number.isNaN(value) ? null : value)),
    topk_prompt_logprobs: null,
  };
}
