import { addAbortListener } from 'node:events';
import type { z } from 'zod';
import { errorText } from '../base/errors.js';
import { markHandled } from '../base/task-scope.js';
import { maxRetrieved, RetrieveFuturesRequest, RetrieveFuturesResponse } from './sampling-api.js';
import type { Answer } from './answer.js';
import { RunLost, Unavailable } from './errors.js';
import { overdue, pollTimeoutMs, pollUntil, type Question, type Reading } from './future.js';
import { waitable, type TinkerHttp, type TinkerRequest } from './http.js';

type Settled = z.output<typeof RetrieveFuturesResponse>;

interface Waiter {
  readonly deadline: number; // ms of the client's clock
  readonly deadlineMs: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** The requests of one client of a sampling session, which number from `clone` times {@link requestsOfAClient}. */
interface PolledClient {
  readonly samplingSessionId: string;
  readonly clone: number;
}

/**
 * Polls all pending samples of one client by one request at a time, for servers that offer `retrieve_futures`. It reports
 * only which results are there: each is then fetched, and its failure read, by its own `retrieve_future`. If the server
 * refuses the call after all, every sample polls by itself.
 */
export class SamplingPoller {
  readonly #waiting = new Map<string, Waiter>(); // by request id
  readonly #early = new Set<string>(); // settled, perhaps of a submission whose answer is still to come
  readonly #retrieved = new Set<string>(); // whose results the server need not keep
  #submitting = 0;
  #cursor = 0;
  #polling: AbortController | undefined;
  #isRefused = false;

  constructor(
    private readonly http: TinkerHttp,
    private readonly client: PolledClient,
  ) {}

  /**
   * Submits a sample.
   *
   * @param submit resolves with the request id.
   * @returns that id, and a promise that resolves once its result, or its failure, is there. It rejects with
   *   RunLost if the server has ended, with Unavailable if no poll was answered for too long and with StillPending if
   *   the operation takes longer than `deadlineMs`.
   */
  async submit(
    submit: () => Promise<string>,
    signal: AbortSignal,
    deadlineMs: number,
  ): Promise<{ requestId: string; settled: Promise<void> }> {
    this.#submitting++;
    try {
      const requestId = await submit();
      const isSettled = this.#isRefused || this.#early.has(requestId);
      const settled = isSettled ? Promise.resolve() : this.#wait(requestId, signal, deadlineMs);
      return { requestId, settled: markHandled(settled) };
    } finally {
      this.#submitting--;
      if (this.#submitting === 0) this.#early.clear();
    }
  }

  /** Notes that a result has been fetched; the next poll says so. */
  retrieved(requestId: string): void {
    if (!this.#isRefused) this.#retrieved.add(requestId);
  }

  async #wait(requestId: string, signal: AbortSignal, deadlineMs: number): Promise<void> {
    signal.throwIfAborted();
    const deadline = this.http.now() + deadlineMs;
    const settled = new Promise<void>((resolve, reject) => {
      this.#waiting.set(requestId, { deadline, deadlineMs, resolve, reject });
    });
    using _end = addAbortListener(signal, () => {
      this.#waiting.get(requestId)?.reject(signal.reason);
    });
    this.#start();
    try {
      await settled;
    } finally {
      this.#waiting.delete(requestId);
      if (this.#waiting.size === 0) this.#polling?.abort();
    }
  }

  /** Polls until nothing is waited for. */
  #start(): void {
    if (this.#polling !== undefined) return;
    const polling = new AbortController();
    this.#polling = polling;
    void this.#poll(polling.signal).finally(() => {
      this.#polling = undefined;
      if (this.#waiting.size > 0) this.#start(); // they came while the last poll was being aborted
    });
  }

  async #poll(signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted) {
        const { completions, cursor } = await this.#next(signal);
        this.#cursor = cursor;
        for (const { request_id: id } of completions) {
          const waiter = this.#waiting.get(id);
          this.#waiting.delete(id); // the next sample must not find a poll that is about to end
          if (waiter !== undefined) waiter.resolve();
          else if (this.#submitting > 0) this.#early.add(id);
        }
        if (this.#waiting.size === 0) return;
        this.#endOverdue(this.http.baseUrl);
      }
    } catch (caught) {
      if (signal.aborted) return;
      this.#giveUp(caught);
    }
  }

  async #next(signal: AbortSignal): Promise<Settled> {
    let reported: string[] = [];
    const question: Question<Settled> = {
      request: () => {
        reported = [...this.#retrieved].slice(0, maxRetrieved);
        return this.#request(reported);
      },
      read: (answer) => {
        const reading = readSettled(answer);
        if (!('error' in reading)) for (const id of reported) this.#retrieved.delete(id);
        return reading;
      },
      onPending: (url) => {
        this.#endOverdue(url);
      },
    };
    return pollUntil(this.http, question, signal);
  }

  #request(retrieved: readonly string[]): TinkerRequest {
    const json = RetrieveFuturesRequest.parse({
      target: {
        sampling_session_id: this.client.samplingSessionId,
        cloned_sampler_id: this.client.clone,
      },
      prev_cursor: this.#cursor,
      retrieved_request_ids: retrieved,
    });
    const operation = 'retrieve_futures';
    const path = '/api/v1/retrieve_futures';
    return { operation, path, body: { json }, timeoutMs: pollTimeoutMs };
  }

  #endOverdue(url: string): void {
    for (const { deadline, deadlineMs, reject } of this.#waiting.values()) {
      if (this.http.now() > deadline) reject(overdue('asample', url, deadlineMs));
    }
  }

  /** Passes on that the server has ended or is silent; any other refusal is of the call, not of the samples. */
  #giveUp(caught: unknown): void {
    const isServers =
      caught instanceof Unavailable ||
      (caught instanceof RunLost && caught.failure.status === undefined);
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    if (isServers) {
      for (const { reject } of waiting) reject(caught);
      return;
    }
    this.#isRefused = true;
    this.http.log.warn({ reason: errorText(caught) }, 'samples are polled one by one');
    for (const { resolve } of waiting) resolve();
  }
}

function readSettled(answer: Answer): Reading<Settled> {
  if (!answer.isOk) return { error: answer.error, isTransient: waitable(answer) };
  const settled = answer.parse(RetrieveFuturesResponse);
  return settled.completions.length === 0 ? { isPending: true } : { value: settled };
}
