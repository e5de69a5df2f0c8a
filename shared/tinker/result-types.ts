import { z } from 'zod';
import {
  ForwardBackwardJsonResult,
  LoadResult,
  ModelResult,
  OptimStepResult,
  SaveResult,
} from './api.js';
import { SampleJsonResult } from './sampling-api.js';
import { decodeForwardBackwardResult } from './codec.js';
import { decodeSampleResult } from './sample-codec.js';
import type { ForwardBackwardResult, SampleResult } from './types.js';

/** Decoders of a future's result, one for each encoding that a server may choose. */
export interface ResultType<T> {
  readonly name: string; // in the X-Tinker-Request-Type header
  readonly json: z.ZodType<T>;
  readonly protobuf?: (bytes: Uint8Array) => T;
}

export const forwardBackwardType: ResultType<ForwardBackwardResult> = {
  name: 'ForwardBackward',
  protobuf: decodeForwardBackwardResult,
  json: ForwardBackwardJsonResult.transform(({ loss_fn_outputs, metrics }) => ({
    logprobs: loss_fn_outputs.map((output) => Float32Array.from(output['logprobs']?.data ?? [])),
    metrics: metrics ?? {},
  })),
};

export const sampleType: ResultType<SampleResult> = {
  name: 'Sample',
  protobuf: decodeSampleResult,
  json: SampleJsonResult.transform(({ sequences, prompt_logprobs: prompt }) => ({
    sequences: sequences.map(({ tokens, logprobs, stop_reason }) => ({
      tokens: Int32Array.from(tokens),
      logprobs: Float32Array.from(logprobs),
      stopReason: stop_reason,
    })),
    ...(prompt && { promptLogprobs: Float32Array.from(prompt) }),
  })),
};

export const createModelType: ResultType<z.output<typeof ModelResult>> = {
  name: 'CreateModel',
  json: ModelResult,
};

export const unloadModelType: ResultType<z.output<typeof ModelResult>> = {
  name: 'UnloadModel',
  json: ModelResult,
};

export const optimStepType: ResultType<Record<string, number>> = {
  name: 'OptimStep',
  json: OptimStepResult.transform(({ metrics }) => metrics ?? {}),
};

/** Results: the tinker path of the saved state or weights. */
export const saveStateType: ResultType<string> = savedAs('SaveWeights');
export const saveForSamplerType: ResultType<string> = savedAs('SaveWeightsForSampler');

export const saveExternalType: ResultType<string> = savedAs('SaveWeightsExternal');

export const loadType: ResultType<z.output<typeof LoadResult>> = {
  name: 'LoadWeights',
  json: LoadResult,
};

function savedAs(name: string): ResultType<string> {
  const path = SaveResult.transform((result) => result.path).pipe(
    z.string().startsWith('tinker://'),
  );
  return { name, json: path.transform(withKind) };
}

/** SkyRL leaves out the kind of sampler weights, though it takes the path with it too. */
function withKind(path: string): string {
  return path.replace(/^(tinker:\/\/[^/]+)\/([^/]+)$/, '$1/sampler_weights/$2');
}
