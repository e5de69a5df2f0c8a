import { randomInt } from 'node:crypto';
import { TaskScope } from '../base/task-scope.js';
import { UntypedFuture } from './api.js';
import { CancelFutureRequest, requestsOfAClient, SampleRequest } from './sampling-api.js';
import { BadAnswer, hasNoSuchCall, RunLost, StillPending } from './errors.js';
import { defaultDeadlineMs, retrieve } from './future.js';
import type { TinkerHttp } from './http.js';
import type { Dialect } from './operations.js';
import { sampleType } from './result-types.js';
import { SamplingPoller } from './sampling-poller.js';
import type { SampledSequence, SampleResult, TopTokens } from './types.js';

interface SampleOptions {
  readonly prompt: Int32Array; // [P]
  readonly numSamples: number;
  readonly maxTokens: number;
  readonly temperature: number; // 0: greedy
  readonly seed?: number;
  /** Texts or token ids that end a completion. */
  readonly stop?: readonly string[] | readonly number[];
  readonly signal?: AbortSignal;
  /** How long the server may keep the call pending, in ms; an outage of the server does not end it. */
  readonly deadlineMs?: number;
  /** Asks for the logprobs of the prompt's own tokens as well, which not every server shows. */
  readonly scoresPrompt?: boolean;
}

type ScoreOptions = Pick<SampleOptions, 'signal'> & { readonly temperature?: number };

/** Samples with the weights of one sampling session. Calls are independent and may run concurrently. */
export class Sampler {
  #seqId: number;
  readonly #poller: SamplingPoller | undefined;

  constructor(
    readonly samplingSessionId: string,
    private readonly http: TinkerHttp,
    private readonly clientSignal: AbortSignal,
    private readonly dialect: Pick<Dialect, 'pollsTogether' | 'drawsNone' | 'cancelsSamples'>,
  ) {
    // Several processes share a session, and a server may treat a repeated id as a copy of the same request, so
    // each client counts from a random start. Two that draw the same clone see, and ignore, each other's results.
    const clone = 1 + randomInt(maxClones);
    this.#seqId = clone * requestsOfAClient + randomInt(400) * 2 ** 21;
    if (dialect.pollsTogether)
      this.#poller = new SamplingPoller(http, { samplingSessionId, clone });
  }

  /**
   * @returns [numSamples] completions. Logprobs are of the sampled distribution, that is, after temperature. Those of
   * the prompt are absent if the server does not show them, and may be of temperature 1.
   * @throws {RunLost} if the server has lost the session.
   * @throws {StillPending} if it does not finish in time.
   */
  async sample(options: SampleOptions): Promise<SampledSequence[]> {
    const { sequences, promptLogprobs } = await this.#ask(options);
    if (sequences.length !== options.numSamples) {
      throw this.#unexpected(`${sequences.length} sequences for ${options.numSamples} samples`);
    }
    if (options.scoresPrompt !== true || promptLogprobs?.length !== options.prompt.length) {
      return sequences;
    }
    return sequences.map((sequence) => ({ ...sequence, promptLogprobs }));
  }

  /**
   * Returns the logprob of each token given its predecessors: [P], the first NaN.
   *
   * @param options.temperature divides the logits, at the local backend; other servers may ignore it here.
   */
  async logprobs(tokens: Int32Array, options: ScoreOptions = {}): Promise<Float32Array> {
    return (await this.#score(tokens, 0, options)).logprobs;
  }

  /**
   * The same, with the most probable tokens in the place of each.
   *
   * @param k how many of them. Servers allow few: vLLM 20, the local backend 64 or the whole vocabulary.
   * @throws {BadAnswer} if the server shows none.
   */
  async mostProbable(
    tokens: Int32Array,
    k: number,
    options: ScoreOptions = {},
  ): Promise<{ readonly logprobs: Float32Array; readonly top: TopTokens }> {
    const { logprobs, top } = await this.#score(tokens, k, options);
    if (top?.tokens.length !== tokens.length * k) {
      throw this.#unexpected(
        `${top?.tokens.length ?? 0} most probable tokens for ${tokens.length} places with ${k} of them`,
      );
    }
    return { logprobs, top };
  }

  async #score(
    tokens: Int32Array,
    topPrompt: number,
    { signal, temperature = 1 }: ScoreOptions,
  ): Promise<{ logprobs: Float32Array; top: TopTokens | undefined }> {
    const options = {
      prompt: tokens,
      numSamples: 1,
      maxTokens: this.dialect.drawsNone ? 0 : 1,
      temperature,
      scoresPrompt: true,
    };
    const { promptLogprobs, promptTop } = await this.#ask(
      { ...options, ...(signal && { signal }) },
      topPrompt,
    );
    if (promptLogprobs?.length !== tokens.length) {
      throw this.#unexpected(
        `${promptLogprobs?.length ?? 0} prompt logprobs for ${tokens.length} tokens`,
      );
    }
    return { logprobs: promptLogprobs, top: promptTop };
  }

  async #ask(options: SampleOptions, topPrompt = 0): Promise<SampleResult> {
    const { prompt, numSamples, maxTokens, temperature, seed, stop } = options;
    const json = SampleRequest.parse({
      num_samples: numSamples,
      prompt: { chunks: [{ type: 'encoded_text', tokens: [...prompt] }] },
      // Always explicit: TuFT's default is 16 tokens, and it treats a plain string as a list of letters.
      sampling_params: {
        max_tokens: maxTokens,
        temperature,
        seed,
        ...(stop && stop.length > 0 && { stop: [...stop] }),
      },
      sampling_session_id: this.samplingSessionId,
      seq_id: this.#seqId++,
      ...(options.scoresPrompt === true && { prompt_logprobs: true }),
      ...(topPrompt > 0 && { topk_prompt_logprobs: topPrompt }),
    });
    const { deadlineMs = defaultDeadlineMs } = options;
    await using call = new TaskScope(this.clientSignal, options.signal);
    const { signal } = call;
    const submit = () => this.#submit(json, signal);
    for (let attempt = 1; ; attempt++) {
      const { requestId, settled } =
        this.#poller === undefined
          ? { requestId: await submit(), settled: undefined }
          : await this.#poller.submit(submit, signal, deadlineMs);
      try {
        await settled;
        const future = { operation: 'asample', requestId, type: sampleType };
        const result = await retrieve(this.http, future, signal, deadlineMs);
        this.#poller?.retrieved(requestId);
        return result;
      } catch (error) {
        if (signal.aborted || error instanceof StillPending) void this.#cancel(requestId);
        // The future was lost, for instance in a server restart; the session may still exist.
        if (!(error instanceof RunLost) || attempt === maxAttempts) throw error;
        this.http.log.warn(
          { attempt, detail: error.failure.detail },
          'sampling retried after a lost future',
        );
      }
    }
  }

  /** Submits a request. Retries are safe: sampling has no side effect on the server. */
  async #submit(json: unknown, signal: AbortSignal): Promise<string> {
    const answer = await this.http.call(
      {
        operation: 'asample',
        path: '/api/v1/asample',
        body: { json },
        headers: { 'x-tinker-sampling-backpressure': '1' },
      },
      signal,
    );
    return answer.parse(UntypedFuture).request_id;
  }

  /** Asks the server to give up a sample that is no longer awaited; it may have ended it, or lack the call. */
  async #cancel(requestId: string): Promise<void> {
    if (!this.dialect.cancelsSamples || this.clientSignal.aborted) return;
    const json = CancelFutureRequest.parse({ request_id: requestId });
    const path = '/api/v1/cancel_future';
    const request = { operation: 'cancel_future', path, body: { json }, timeoutMs: 10_000 };
    try {
      const answer = await this.http.send(request, this.clientSignal);
      if (!answer.isOk && hasNoSuchCall(answer.failure)) this.dialect.cancelsSamples = false;
    } catch {
      // The sample then runs to its end, as without this call.
    }
  }

  #unexpected(detail: string): BadAnswer {
    return new BadAnswer({ operation: 'asample', url: this.http.baseUrl, detail });
  }
}

const maxAttempts = 3;
/** So that every id is a safe integer. */
const maxClones = 9_000_000;
