import type { Reply } from '../shared/service/http-server.js';
import { Histogram } from 'prom-client';
import { encodeForwardBackwardResult, protobufType } from '../shared/tinker/codec.js';
import { encodeSampleResult } from '../shared/tinker/sample-codec.js';
import {
  noLogprob,
  type ForwardBackwardResult,
  type SampleResult,
  type TopTokens,
} from '../shared/tinker/types.js';
import { jsonReply } from './http-api.js';

/** The result of an operation, as its future returns it. */
export type OperationResult =
  | { readonly kind: 'json'; readonly json: Readonly<Record<string, unknown>> }
  | {
      readonly kind: 'forward_backward';
      readonly loss: string;
      readonly result: ForwardBackwardResult;
    }
  | { readonly kind: 'sample'; readonly result: SampleResult };

const bytesOfArray = 256; // of a typed array besides its elements: with many short answers, these are the most

/** Returns how many bytes the arrays of a result take. */
export function bytesOf(result: OperationResult): number {
  if (result.kind === 'json') return 0;
  if (result.kind === 'forward_backward') return sum(result.result.logprobs);
  const { sequences, promptLogprobs, promptTop } = result.result;
  return (
    sum(sequences.flatMap((one) => [one.tokens, one.logprobs, ...arraysOf(one.top)])) +
    sum([...(promptLogprobs ? [promptLogprobs] : []), ...arraysOf(promptTop)])
  );
}

function arraysOf(top: TopTokens | undefined): (Int32Array | Float32Array)[] {
  return top === undefined ? [] : [top.tokens, top.logprobs];
}

function sum(arrays: readonly { readonly byteLength: number }[]): number {
  return arrays.reduce((bytes, { byteLength }) => bytes + bytesOfArray + byteLength, 0);
}

/** Encodes the result: as protobuf if the client accepts it and the kind has a message, else as JSON. */
export function resultReply(result: OperationResult, takesProtobuf: boolean): Reply {
  if (result.kind === 'json') return jsonReply(200, result.json);
  if (!takesProtobuf) return jsonReply(200, asJson(result));
  const body =
    result.kind === 'sample'
      ? encodeSampleResult(result.result)
      : encodeForwardBackwardResult(result.loss, result.result);
  return { status: 200, headers: { 'content-type': protobufType }, body };
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
  const { sequences, promptLogprobs, promptTop, weightsPath } = result.result;
  return {
    type: 'sample',
    sequences: sequences.map(({ stopReason, tokens, logprobs, top }) => ({
      stop_reason: stopReason,
      tokens: [...tokens],
      logprobs: [...logprobs],
      ...(top && { topk_logprobs: pairsOf(top) }),
    })),
    prompt_logprobs:
      promptLogprobs && [...promptLogprobs].map((value) => (Number.isNaN(value) ? null : value)),
    topk_prompt_logprobs: promptTop === undefined ? null : pairsOf(promptTop),
    ...(weightsPath !== undefined && { weights_path: weightsPath }),
  };
}

/** For each position its tokens with their logprobs; null where none was scored. */
function pairsOf({
  k,
  tokens,
  logprobs,
}: TopTokens): ([token: number, logprob: number][] | null)[] {
  return Array.from({ length: tokens.length / k }, (_, position) =>
    logprobs[position * k] === noLogprob
      ? null
      : Array.from({ length: k }, (_, rank) => {
          const i = position * k + rank;
          return [tokens[i]!, logprobs[i]!];
        }),
  );
}

const operationSeconds = new Histogram({
  name: 'local_backend_operation_seconds',
  help: 'Seconds that an operation took, without its wait in the queue, by operation and outcome; what was sampled or scored together is one operation.',
  labelNames: ['operation', 'outcome'],
  buckets: [0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120],
});

/** Runs `work` and observes its duration. */
export async function timed<T>(operation: string, work: () => Promise<T>): Promise<T> {
  const stop = operationSeconds.startTimer({ operation });
  try {
    const result = await work();
    stop({ outcome: 'ok' });
    return result;
  } catch (error) {
    stop({ outcome: 'failed' });
    throw error;
  }
}
