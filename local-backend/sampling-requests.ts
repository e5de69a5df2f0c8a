import { createHash } from 'node:crypto';
import type { z } from 'zod';
import { PermanentError } from '../shared/base/errors.js';
import { WaveQueue } from '../shared/model/wave-queue.js';
import type { WorkerCalls } from '../shared/service/worker-calls.js';
import type { SampleRequest } from '../shared/tinker/sampling-api.js';
import type { SampledSequence } from '../shared/tinker/types.js';
import { badRequest, narrowSeed } from './http-api.js';
import type { AdapterFile } from './adapter-files.js';
import { timed } from './operation-result.js';
import type { SampleJob, SamplingCalls } from './sampling-worker.js';
import type { Scores, ScoringJob } from './scored-texts.js';
import type { TrainingCalls } from './training-worker.js';
import { assertFits, leastTemperature, type ServedModel } from './served-model.js';

const defaultMaxTokens = 16; // TuFT's
const maxSamples = 4096; // decoded in parts, see SamplingQueue
const maxTop = 64; // tokens at each position
const maxTopOfSamples = 2 ** 22; // tokens of all positions, of 8 bytes each

/** What a request asks about its texts, besides the logprobs of its samples. */
export interface Questions {
  readonly temperature: number; // 1 for greedy sampling
  readonly wantsPrompt: boolean; // the logprob of each token of the prompt
  readonly firstScored: number; // index of the first token of the prompt that is scored: never 0
  readonly topPrompt: number; // how many most probable tokens at each position of the prompt
  readonly topSampled: number; // and of the samples
}

/**
 * Converts an `asample` request to a job for the sampling thread.
 *
 * @param seed the default if the request has none.
 * @throws {ApiError} 400 for an unsupported request; {@link assertFits}'s error for a wrong prompt.
 */
export function planSample(
  request: z.output<typeof SampleRequest>,
  model: ServedModel,
  seed: number,
): { job: SampleJob; questions: Questions } {
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
  if (params.temperature > 0 && params.temperature < leastTemperature) {
    throw badRequest(
      `sampling_params.temperature is ${params.temperature}; at least ${leastTemperature}, or 0 for greedy sampling`,
    );
  }
  if (params.top_p < 1) {
    throw badRequest(`sampling_params.top_p is ${params.top_p}: ${truncates}; send 1`);
  }
  const { topk_prompt_logprobs: topPrompt, topk_sample_logprobs: topSampled = 0 } = request;
  const mostTop = Math.min(maxTop, vocabSize);
  if (topPrompt > mostTop)
    throw badRequest(`topk_prompt_logprobs is ${topPrompt}; at most ${mostTop}`);
  if (topSampled > mostTop)
    throw badRequest(`topk_sample_logprobs is ${topSampled}; at most ${mostTop}`);
  const prompt = Int32Array.from(request.prompt.chunks.flatMap(({ tokens }) => tokens));
  if (prompt.length === 0) throw badRequest('the prompt has no tokens');
  // A prompt that leaves no room can still be scored, as the SDK's compute_logprobs asks.
  const isOnlyScored = prompt.length === maxPositions && request.prompt_logprobs === true;
  if (prompt.length >= maxPositions && !isOnlyScored) {
    throw badRequest(
      `the prompt has ${prompt.length} tokens; the model takes ${maxPositions} in all`,
    );
  }
  assertFits(model, prompt, 'the prompt');
  const lastN = request.prompt_logprobs_last_n;
  if (lastN !== undefined && (lastN >= prompt.length || request.prompt_logprobs !== true)) {
    throw badRequest(
      `prompt_logprobs_last_n is ${lastN}: it needs prompt_logprobs, and at most ${prompt.length - 1} of ${prompt.length} tokens have one`,
    );
  }
  if (params.max_tokens === 0 && request.prompt_logprobs !== true) {
    throw badRequest(
      'sampling_params.max_tokens is 0: it needs prompt_logprobs, or send at least 1',
    );
  }
  const maxTokens = Math.min(params.max_tokens ?? defaultMaxTokens, maxPositions - prompt.length);
  const topOfSamples = request.num_samples * maxTokens * topSampled;
  if (topOfSamples > maxTopOfSamples) {
    throw badRequest(
      `${request.num_samples} samples of ${maxTokens} tokens with topk_sample_logprobs ${topSampled} are ${topOfSamples} logprobs; at most ${maxTopOfSamples}: send fewer samples in a request`,
    );
  }
  return {
    job: {
      prompt,
      count: request.num_samples,
      maxTokens,
      temperature: params.temperature,
      seed: params.seed === undefined ? seed : narrowSeed(params.seed),
      ...stops(params.stop),
      // As in the API: an empty list leaves no stop at all, not even the model's own.
      ...(Array.isArray(params.stop) && params.stop.length === 0 && { ignoresEos: true }),
    },
    questions: {
      temperature: params.temperature || 1,
      wantsPrompt: request.prompt_logprobs === true,
      firstScored: prompt.length - (lastN ?? prompt.length - 1),
      topPrompt,
      topSampled,
    },
  };
}

/** Splits `stop` by type. A plain string is one stop. */
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

/** A queued sampling request. */
export interface QueuedSample {
  readonly adapter: AdapterFile | undefined; // undefined: the base model
  readonly job: SampleJob;
}

/** Decoded in one batch; with more, the time of a step grows linearly. */
export const mostRows = 256;
const maxPromptTokens = 8_192; // with padding; prefilled at once, which takes memory

/**
 * Returns whether a request can join a wave: it has the same weights and sample count, and the wave
 * stays within the limits. Users of the SDK send one request per rollout, hundreds at once.
 */
function joinsWave(
  { adapter, job }: QueuedSample,
  wave: readonly QueuedSample[],
  maxRows: number,
): boolean {
  const [first] = wave;
  const isAlike = adapter?.sha256 === first!.adapter?.sha256 && job.count === first!.job.count;
  const size = wave.length + 1;
  if (!isAlike || size * job.count > maxRows) return false;
  const width = wave.reduce((most, one) => Math.max(most, one.job.prompt.length), 0);
  return size * Math.max(width, job.prompt.length) <= maxPromptTokens;
}

/** The queue of the sampling thread, which samples compatible requests together, in waves. */
export class SamplingQueue {
  readonly #queue: WaveQueue<QueuedSample, SampledSequence[]>;

  /**
   * @param worker returns the sampling thread, started on first use.
   * @param maxRows samples in a wave.
   */
  constructor(
    worker: () => Pick<WorkerCalls<SamplingCalls>, 'call'>,
    private readonly maxRows = mostRows,
  ) {
    this.#queue = new WaveQueue(
      (request, wave) => joinsWave(request, wave, maxRows),
      (wave) =>
        timed('sample', () =>
          worker().call('sample', {
            adapter: wave[0]!.adapter,
            // The call transfers its buffers; a retry needs them again.
            jobs: wave.map(({ job }) => ({ ...job, prompt: job.prompt.slice() })),
          }),
        ),
    );
  }

  /** The number of requests that wait for a wave. */
  get depth(): number {
    return this.#queue.depth;
  }

  /**
   * Samples more than fit in one batch in parts, one after another: a request takes no more memory than one
   * part, and other requests have their turn in between.
   *
   * @param signal aborts what still waits; a part that is being sampled is finished.
   * @throws {PermanentError} when `signal` aborts.
   */
  async sample(request: QueuedSample, signal: AbortSignal): Promise<SampledSequence[]> {
    const { count, seed } = request.job;
    const sampled: SampledSequence[] = [];
    const { maxRows } = this;
    for (let part = 0; part * maxRows < count; part++) {
      if (signal.aborted) throw new PermanentError('the request was cancelled');
      const job = {
        ...request.job,
        count: Math.min(maxRows, count - part * maxRows),
        seed: part === 0 ? seed : partSeed(seed, part),
      };
      for (const one of await this.#samplePart({ ...request, job }, signal)) sampled.push(one);
    }
    if (signal.aborted) throw new PermanentError('the request was cancelled');
    return sampled;
  }

  async #samplePart(part: QueuedSample, signal: AbortSignal): Promise<SampledSequence[]> {
    const withdraw = (): void => {
      this.#queue.withdraw(part, []);
    };
    signal.addEventListener('abort', withdraw);
    try {
      const sampled = this.#queue.add(part);
      setImmediate(() => void this.#queue.serve()); // batches requests that arrive together
      return await sampled;
    } finally {
      signal.removeEventListener('abort', withdraw);
    }
  }
}

const maxScoredTokens = 8_192; // with padding; of one call of the training thread, so that training waits for no long one

function joinsScores(item: ScoringJob, wave: readonly ScoringJob[]): boolean {
  const [first] = wave;
  const isAlike =
    item.adapter?.sha256 === first!.adapter?.sha256 &&
    item.k === first!.k &&
    item.temperature === first!.temperature;
  const texts = [...wave, item].flatMap((one) => one.texts);
  const width = texts.reduce((most, { tokens }) => Math.max(most, tokens.length), 0);
  return isAlike && texts.length * width <= maxScoredTokens;
}

/** Requests for the rollouts of a group arrive one by one; a score may be so much later. */
const gatherMs = 5;

/** Scores texts by the training thread: those of requests that arrive at about the same time, as of a whole group, in one call. */
export class ScoringQueue {
  readonly #queue: WaveQueue<ScoringJob, Scores[]>;

  constructor(trainer: Pick<WorkerCalls<Pick<TrainingCalls, 'score'>>, 'call'>) {
    this.#queue = new WaveQueue(joinsScores, async (wave) => {
      const { adapter, k, temperature } = wave[0]!;
      // The call transfers its buffers; a retry needs them again.
      const texts = wave.flatMap((one) =>
        one.texts.map(({ tokens, from }) => ({ tokens: tokens.slice(), from })),
      );
      const call = () => trainer.call('score', { adapter, texts, k, temperature });
      const scores = await timed('score', call);
      let next = 0;
      return wave.map((one) => scores.slice(next, (next += one.texts.length)));
    });
  }

  /** The number of requests that wait. */
  get depth(): number {
    return this.#queue.depth;
  }

  /**
   * Scores many texts in parts, one after another, so that training has its turn in between.
   *
   * @param signal ends it before the next part.
   * @returns the scores of each text.
   * @throws {PermanentError} when `signal` aborts.
   */
  async score(request: ScoringJob, signal: AbortSignal): Promise<Scores[]> {
    const scores: Scores[] = [];
    for (const texts of partsOf(request.texts)) {
      if (signal.aborted) throw new PermanentError('the request was cancelled');
      const part = this.#queue.add({ ...request, texts });
      setTimeout(() => void this.#queue.serve(), gatherMs);
      scores.push(...(await part));
    }
    return scores;
  }
}

/** Texts in parts that one call may score: of at most `maxScoredTokens`, or of a single text. */
function partsOf(texts: ScoringJob['texts']): ScoringJob['texts'][] {
  const parts: ScoringJob['texts'][number][][] = [];
  let width = 0;
  for (const text of texts) {
    const part = parts.at(-1);
    width = Math.max(width, text.tokens.length);
    if (part !== undefined && (part.length + 1) * width <= maxScoredTokens) part.push(text);
    else {
      parts.push([text]);
      width = text.tokens.length;
    }
  }
  return parts;
}

/** The seed of a later part, which must not repeat the first. */
function partSeed(seed: number, part: number): number {
  return createHash('sha256').update(`${seed} part ${part}`).digest().readUIntBE(0, 6);
}
