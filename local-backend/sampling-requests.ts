import type { z } from 'zod';
import { WaveQueue } from '../shared/model/wave-queue.js';
import type { WorkerCalls } from '../shared/service/worker-calls.js';
import type { SampleRequest } from '../shared/tinker/api.js';
import type { SampledSequence } from '../shared/tinker/types.js';
import { badRequest, narrowSeed } from './http-api.js';
import type { AdapterFile, SampleOrder, SamplingCalls } from './sampling-worker.js';
import { assertFits, type ServedModel } from './served-model.js';

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

/** A sampling request that waits. */
export interface QueuedSample {
  readonly adapter: AdapterFile | undefined; // the base model's
  readonly order: SampleOrder;
}

const maxRows = 256; // decoded side by side; beyond it a step's time grows with them
const maxPromptTokens = 8_192; // with padding; they are read at once, which takes memory

/**
 * Whether a request can be sampled beside others: it wants the same weights and as many samples, and
 * all of them fit. The SDK's users send a request a rollout, hundreds at once.
 */
function joinsWave({ adapter, order }: QueuedSample, wave: readonly QueuedSample[]) {
  const [first] = wave;
  const isAlike = adapter?.sha256 === first!.adapter?.sha256 && order.count === first!.order.count;
  const size = wave.length + 1;
  if (!isAlike || size * order.count > maxRows) return false;
  const width = wave.reduce((most, one) => Math.max(most, one.order.prompt.length), 0);
  return size * Math.max(width, order.prompt.length) <= maxPromptTokens;
}

/** The requests in front of the sampling thread, which it takes wave by wave. */
export class SamplingQueue {
  readonly #queue: WaveQueue<QueuedSample, SampledSequence[]>;

  /** @param worker the sampling thread, started when first needed. */
  constructor(worker: () => Pick<WorkerCalls<SamplingCalls>, 'call'>) {
    this.#queue = new WaveQueue(joinsWave, (wave) =>
      worker().call('sample', {
        adapter: wave[0]!.adapter,
        // The call gives its memory away, and these may be needed again.
        orders: wave.map(({ order }) => ({ ...order, prompt: order.prompt.slice() })),
      }),
    );
  }

  /** How many requests wait for a wave. */
  get depth(): number {
    return this.#queue.depth;
  }

  sample(request: QueuedSample): Promise<SampledSequence[]> {
    const sampled = this.#queue.add({ ...request });
    setImmediate(() => void this.#queue.serve()); // those that arrive together go together
    return sampled;
  }
}
