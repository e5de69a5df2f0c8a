import type { z } from 'zod';
import type { SampleRequest } from '../shared/tinker/api.js';
import { badRequest } from './api-error.js';
import { narrowSeed } from './narrow-seed.js';
import { assertFits, type ServedModel } from './served-model.js';
import type { SampleOrder } from './sampling-worker.js';

const defaultMaxTokens = 16; // TuFT's
const maxSamples = 4096; // decoded side by side

/**
 * What an `asample` request asks of the sampling thread.
 *
 * @param seed for a request that names none.
 * @returns `promptLogprobsTemperature` undefined when the prompt's logprobs are not asked for.
 * @throws {ApiError} 400 for what cannot be done; {@link assertFits}'s error for a wrong prompt.
 */
export function planSample(
  request: z.output<typeof SampleRequest>,
  model: ServedModel,
  seed: number,
): {
  order: SampleOrder;
  promptLogprobsTemperature: number | undefined;
} {
  const { vocabSize, maxPositions } = model.directory.config;
  if (request.num_samples > maxSamples) {
    throw badRequest(`num_samples is ${request.num_samples}; at most ${maxSamples}`);
  }
  const params = request.sampling_params;
  const truncates =
    'logprobs would be those of a truncated distribution, which cannot be trained on';
  if (params.top_k > 0 && params.top_k < vocabSize) {
    throw badRequest(`sampling_params.top_k is ${params.top_k}: ${truncates}; send -1`);
  }
  if (params.top_p < 1) {
    throw badRequest(`sampling_params.top_p is ${params.top_p}: ${truncates}; send 1`);
  }
  if (request.topk_prompt_logprobs > 0) {
    throw badRequest('topk_prompt_logprobs is not offered here; prompt_logprobs is');
  }
  const prompt = Int32Array.from(request.prompt.chunks.flatMap(({ tokens }) => tokens));
  if (prompt.length === 0) throw badRequest('the prompt has no tokens');
  if (prompt.length >= maxPositions) {
    throw badRequest(
      `the prompt has ${prompt.length} tokens; the model takes ${maxPositions} in all`,
    );
  }
  assertFits(model, prompt, 'the prompt');
  const wanted = params.max_tokens ?? defaultMaxTokens;
  return {
    order: {
      prompt,
      count: request.num_samples,
      maxTokens: Math.min(wanted, maxPositions - prompt.length),
      temperature: params.temperature,
      seed: params.seed === undefined ? seed : narrowSeed(params.seed),
      ...stops(params.stop),
    },
    promptLogprobsTemperature:
      request.prompt_logprobs === true ? params.temperature || 1 : undefined,
  };
}

/** A plain string is one stop, not the stop of each of its letters. */
function stops(stop: string | readonly (string | number)[] | undefined): {
  stopTokenIds: number[];
  stopStrings: string[];
} {
  const all: readonly (string | number)[] = typeof stop === 'string' ? [stop] : (stop ?? []);
  return {
    stopTokenIds: all.filter((one) => typeof one === 'number'),
    stopStrings: all.filter((one) => typeof one === 'string').filter((one) => one !== ''),
  };
}
