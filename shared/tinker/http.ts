import { addAbortListener } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { errorText, UserError } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { Answer } from './answer.js';
import { protobufType } from './codec.js';
import { BadAnswer, type Failure } from './errors.js';
import { RetryBudget, wasNeverSent, wasRefused } from './retry.js';
import { keepSecret } from '../service/telemetry/secrets.js';

/** The server's address, and the network and clock, which tests replace. */
export interface HttpOptions {
  readonly baseUrl: string; // its path is prefixed to the API's paths
  readonly apiKey: string;
  readonly log: Logger;
  readonly fetch?: typeof fetch;
  readonly sleep?: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly now?: () => number; // ms, monotonic
  readonly random?: () => number; // in [0, 1)
  /** How long an operation retries without a usable answer before it gives up. */
  readonly patienceMs?: number;
}

export interface TinkerRequest {
  readonly operation: string; // for errors and logs
  readonly path: string; // from /api/v1/
  readonly method?: 'GET' | 'POST' | 'DELETE'; // POST unless said otherwise
  readonly body?: { readonly json: unknown } | { readonly protobuf: Uint8Array };
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number; // of one attempt
  readonly credential?: string; // instead of the client's
}

/** No answer came: the connection failed, or the attempt timed out. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer';

  constructor(
    readonly failure: Failure,
    readonly isTimeout: boolean,
    /** True if the server cannot have seen the request; otherwise it is unknown. */
    readonly isUnsent: boolean,
    /** True if no process listens there: the server has ended. */
    readonly isRefused: boolean,
    options?: ErrorOptions,
  ) {
    super(failure.detail, options);
  }
}

/** Requests to one server: authenticated, bounded in time and size, retried where that is safe. */
export class TinkerHttp {
  readonly baseUrl: string;
  readonly log: Logger;
  /** Returns the API key, or a short-lived token once the server requires those. */
  credential: (signal: AbortSignal) => Promise<string>;
  readonly now: () => number;
  readonly random: () => number;
  readonly sleep: (ms: number, signal: AbortSignal) => Promise<void>;
  readonly #fetch: typeof fetch;
  readonly #patienceMs: number;
  billingPauseMs = 3_600_000;
  /** Number of refused connections: when it has risen, the server has restarted and lost its unsaved state. */
  refusals = 0;

  /** @throws {UserError} if the base URL is no http(s) URL or the key cannot be a header. */
  constructor(options: HttpOptions) {
    this.baseUrl = checkBaseUrl(options.baseUrl);
    checkApiKey(options.apiKey);
    keepSecret(options.apiKey);
    this.log = options.log;
    this.credential = () => Promise.resolve(options.apiKey);
    this.now = options.now ?? (() => performance.now());
    this.random = options.random ?? Math.random;
    // Not unref'd: the process must not exit between two attempts.
    this.sleep = options.sleep ?? ((ms, signal) => delay(ms, undefined, { signal }));
    this.#fetch = options.fetch ?? fetch;
    this.#patienceMs = options.patienceMs ?? 300_000;
  }

  /** Creates a retry budget for one operation. */
  retryBudget(limitMs = this.#patienceMs): RetryBudget {
    return new RetryBudget(this, limitMs);
  }

  /**
   * Makes one attempt. Resolves with an answer of any status, including redirects, since following one would
   * send the API key to another host.
   *
   * @throws {NoAnswer} if no answer came.
   */
  async send(request: TinkerRequest, signal: AbortSignal): Promise<Answer> {
    const url = this.baseUrl + request.path;
    const headers = new Headers({ accept: 'application/json', ...request.headers });
    headers.set('x-api-key', request.credential ?? (await this.credential(signal)));
    headers.set('user-agent', 'offbeat');
    const init: RequestInit = { method: request.method ?? 'POST', headers, redirect: 'manual' };
    if (request.body !== undefined) {
      const isJson = 'json' in request.body;
      headers.set('content-type', isJson ? 'application/json' : protobufType);
      init.body = isJson ? JSON.stringify(request.body.json) : request.body.protobuf;
    }
    const timeoutMs = request.timeoutMs ?? 60_000;
    return this.#within(request.operation, url, timeoutMs, signal, async (attempt) => {
      const response = await this.#fetch(url, { ...init, signal: attempt });
      const bytes = await readBounded(response, maxAnswerBytes);
      if (bytes !== undefined) {
        return new Answer(request.operation, url, response.status, response.headers, bytes);
      }
      const detail = `its answer is larger than ${maxAnswerBytes} bytes`;
      throw new BadAnswer({ operation: request.operation, url, status: response.status, detail });
    });
  }

  /**
   * Retries with growing waits until an answer is ok; only for requests that may safely arrive twice.
   *
   * @param options.max500s how many 500 answers to treat as transient: on some routes TuFT always answers 500
   *   for unknown ids (§1.4 of the protocol reference).
   * @param options.isDone selects answers other than 2xx to return.
   * @throws {TinkerError} of the class that matches the last answer.
   */
  async call(
    request: TinkerRequest,
    signal: AbortSignal,
    options: {
      retryBudget?: RetryBudget;
      max500s?: number;
      isDone?: (answer: Answer) => boolean;
    } = {},
  ): Promise<Answer> {
    const { retryBudget = this.retryBudget(), max500s = Infinity } = options;
    for (let seen500s = 0; ;) {
      try {
        const answer = await this.send(request, signal);
        if (answer.isOk || options.isDone?.(answer) === true) return answer;
        if (!waitable(answer) || (answer.status === 500 && ++seen500s > max500s)) {
          throw answer.error;
        }
        await retryBudget.wait(answer.failure, answer.headers, signal);
      } catch (caught) {
        if (!(caught instanceof NoAnswer)) throw caught;
        await retryBudget.wait(caught.failure, undefined, signal, caught);
      }
    }
  }

  /** Downloads a URL, such as an archive's signed one; sends the key only to this server. */
  async download(operation: string, url: URL, maxBytes: number, signal: AbortSignal) {
    const isHere = url.origin === new URL(this.baseUrl).origin;
    const headers = isHere ? { 'x-api-key': await this.credential(signal) } : {};
    const redirect = isHere ? 'error' : 'follow';
    const shown = `${url.origin}${url.pathname}`; // a signed URL's query is a secret
    return this.#within(operation, shown, 280_000, signal, async (attempt) => {
      const response = await this.#fetch(url, { headers, redirect, signal: attempt });
      const bytes = await readBounded(response, maxBytes);
      if (bytes !== undefined) {
        return new Answer(operation, shown, response.status, response.headers, bytes);
      }
      const detail = `it is larger than ${maxBytes} bytes`;
      throw new BadAnswer({ operation, url: shown, status: response.status, detail });
    });
  }

  async #within(
    operation: string,
    url: string,
    timeoutMs: number,
    signal: AbortSignal,
    run: (signal: AbortSignal) => Promise<Answer>,
  ): Promise<Answer> {
    signal.throwIfAborted();
    const attempt = new AbortController();
    const outOfTime = new Error(`no answer within ${timeoutMs / 1000} s`);
    const timer = setTimeout(() => {
      attempt.abort(outOfTime);
    }, timeoutMs).unref(); // the socket keeps the process alive while it waits
    using _abortWithCaller = addAbortListener(signal, () => {
      attempt.abort();
    });
    try {
      return await run(attempt.signal);
    } catch (caught) {
      signal.throwIfAborted();
      if (caught instanceof BadAnswer) throw caught;
      const isTimeout = attempt.signal.reason === outOfTime;
      const detail = isTimeout ? outOfTime.message : networkText(caught);
      const isUnsent = !isTimeout && wasNeverSent(caught);
      const isRefused = !isTimeout && wasRefused(caught);
      // Another host, as of a signed link, says nothing of this server.
      if (isRefused && new URL(url, this.baseUrl).origin === new URL(this.baseUrl).origin) {
        this.refusals++;
      }
      const failure = { operation, url, detail };
      throw new NoAnswer(failure, isTimeout, isUnsent, isRefused, { cause: caught });
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Whether to retry: a transient failure, or a 402 while the account's payment is being settled. */
export function waitable(answer: Answer): boolean {
  return answer.isTransient || answer.status === 402;
}

/** Far larger than any chunk's result, and small enough not to exhaust memory. */
const maxAnswerBytes = 512 * 1024 * 1024;

async function readBounded(response: Response, maxBytes: number): Promise<Uint8Array | undefined> {
  if (Number(response.headers.get('content-length')) > maxBytes) {
    await response.body?.cancel();
    return undefined;
  }
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of (response.body ?? []) as AsyncIterable<Uint8Array>) {
    size += part.byteLength;
    if (size > maxBytes) return undefined; // leaving the loop cancels the body
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function networkText(caught: unknown): string {
  const cause = caught instanceof Error ? caught.cause : undefined;
  const code = (cause as { code?: unknown } | undefined)?.code;
  if (typeof code === 'string') return `${errorText(caught)} (${code})`;
  return cause instanceof Error ? `${errorText(caught)} (${cause.message})` : errorText(caught);
}

function checkBaseUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== 'http:' && url?.protocol !== 'https:') {
    throw new UserError(
      `the backend URL is ${JSON.stringify(text)}: expected http://host:port or https://host, with a path if the server has one`,
    );
  }
  if (url.username !== '' || url.search !== '' || url.hash !== '') {
    throw new UserError(
      `the backend URL ${url.origin}${url.pathname} carries a user, a query or a fragment: leave them out, the API key is a separate setting`,
    );
  }
  return url.href.replace(/\/+$/, '');
}

function checkApiKey(key: string): void {
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new UserError('the API key is empty or has blanks or control characters: set the key');
  }
}
