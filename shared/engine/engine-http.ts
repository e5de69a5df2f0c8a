import { addAbortListener, once } from 'node:events';
import { type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { z } from 'zod';
import { errorText, UserError } from '../base/errors.js';
import { excessIn } from '../base/json-bounds.js';
import { keepSecret } from '../service/telemetry/secrets.js';

/** The engine gave no usable answer: it is starting, has ended, hangs, or failed with a status of 500 or more. */
export class EngineDown extends Error {
  override readonly name = 'EngineDown';
}

/** The engine understood the request and refused it. */
export class EngineRefusal extends Error {
  override readonly name = 'EngineRefusal';

  constructor(
    message: string,
    readonly status: number,
    readonly detail: string, // the engine's own words
  ) {
    super(message);
  }
}

class TooLarge extends Error {}

/** An address as it may be shown. */
export function withoutCredentials(url: string): string {
  return url.replace(/\/\/[^/?#]*@/, '//…@');
}

/** The result; undefined if the server refuses the request, or does not have the route. */
export async function unlessRefused<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof EngineRefusal) return undefined;
    throw error;
  }
}

interface EngineRequest {
  readonly method?: 'GET' | 'POST'; // POST unless said otherwise
  readonly path: string; // below the engine's URL, with a leading slash
  readonly body?: unknown; // sent as JSON
  readonly limitMs: number; // until the whole answer has arrived
  readonly maxValues?: number; // of the answer's JSON: numbers, strings and so on
}

const keyRemedy = "give the engine's key as ACTOR_ENGINE_API_KEY";
const smallAnswer = 20_000; // values
/** vLLM shows a series for each set of adapters that it has ever run together, a few KB for each version. */
const largestMetrics = 1_000_000; // values
const bytesPerValue = 64; // and the name of its field

/**
 * Requests to one engine. Every request has a connection of its own: an engine closes idle ones after a few seconds,
 * and a request that crosses with that would look like a crash. Not `fetch`, which gives up after 300 seconds
 * without a header, the time of one long answer.
 */
export class EngineHttp {
  /** As it may be shown: it is in every message, and in the actor's lease. */
  readonly url: string;

  /** @param address which may have a name and a password. */
  constructor(
    private readonly address: string,
    private readonly apiKey?: string,
  ) {
    this.url = withoutCredentials(address);
    keepSecret(new URL(address).password);
    if (apiKey !== undefined) keepSecret(apiKey);
  }

  /**
   * Makes one request for JSON.
   *
   * @throws {EngineDown} if no usable answer came within the limit.
   * @throws {EngineRefusal} for a status of 300 to 499.
   * @throws {UserError} if the key is missing or wrong.
   */
  async ask<Schema extends z.ZodType>(
    schema: Schema,
    request: EngineRequest,
    signal: AbortSignal,
  ): Promise<z.output<Schema>> {
    const { maxValues = smallAnswer } = request;
    const bytes = await this.#send(request, signal);
    const excess = excessIn(bytes, { values: maxValues, containers: maxValues, depth: 32 });
    const answer = schema.safeParse(excess === undefined ? parsed(bytes) : undefined);
    if (answer.success) return answer.data;
    const why = excess === undefined ? errorText(answer.error) : `it has ${excess}`;
    const excerpt = bytes.toString('utf8', 0, 300);
    throw new EngineDown(
      `${this.#shown(request)}: the answer is not of this protocol: ${why}, in ${excerpt}`,
    );
  }

  /**
   * The text of the engine's `/metrics`; undefined if it shows none, or more than can be read at every check.
   *
   * @throws {EngineDown} if it does not answer within the limit.
   */
  async metrics(limitMs: number, signal: AbortSignal): Promise<string | undefined> {
    const request = {
      method: 'GET',
      path: '/metrics',
      limitMs,
      maxValues: largestMetrics,
    } as const;
    try {
      return await unlessRefused(this.text(request, signal));
    } catch (error) {
      if (error instanceof EngineDown && error.cause instanceof TooLarge) return undefined;
      throw error;
    }
  }

  /** Makes one request for text, as {@link ask} does for JSON. */
  async text(request: EngineRequest, signal: AbortSignal): Promise<string> {
    return (await this.#send(request, signal)).toString('utf8');
  }

  #shown({ method = 'POST', path }: EngineRequest): string {
    return `${method} ${this.url}${path}`;
  }

  async #send(request: EngineRequest, signal: AbortSignal): Promise<Buffer> {
    signal.throwIfAborted();
    const { method = 'POST', path, body, limitMs, maxValues = smallAnswer } = request;
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const url = new URL(`${this.address}${path}`);
    const maxBytes = maxValues * bytesPerValue;
    const attempt = new AbortController();
    const timer = setTimeout(() => {
      attempt.abort(new Error(`no answer within ${Math.round(limitMs / 1_000)} s`));
    }, limitMs);
    using _abortWithCaller = addAbortListener(signal, () => {
      attempt.abort(signal.reason);
    });
    const outgoing = (url.protocol === 'https:' ? requestHttps : requestHttp)(url, {
      method,
      agent: false,
      headers: {
        accept: 'application/json',
        ...(this.apiKey !== undefined && { authorization: `Bearer ${this.apiKey}` }),
        ...(sent !== undefined && {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(sent),
        }),
      },
    });
    try {
      outgoing.on('error', () => undefined); // `once` reports the first
      outgoing.on('socket', (socket) => socket.setKeepAlive(true, 30_000)); // a long wait crosses NAT and firewalls
      const arriving = once(outgoing, 'response', { signal: attempt.signal });
      outgoing.end(sent);
      const [response] = (await arriving) as [IncomingMessage];
      const parts: Buffer[] = [];
      let size = 0;
      addAbortListener(attempt.signal, () => outgoing.destroy());
      for await (const part of response as AsyncIterable<Buffer>) {
        size += part.byteLength;
        if (size > maxBytes) throw new TooLarge(`the answer is larger than ${maxBytes} bytes`);
        parts.push(part);
      }
      return this.#accepted(request, response.statusCode ?? 0, Buffer.concat(parts));
    } catch (caught) {
      if (caught instanceof EngineRefusal || caught instanceof UserError) throw caught;
      if (caught instanceof EngineDown) throw caught;
      signal.throwIfAborted();
      const cause: unknown = attempt.signal.aborted ? attempt.signal.reason : caught;
      const { code } = cause as NodeJS.ErrnoException;
      throw new EngineDown(`${this.#shown(request)}: ${errorText(cause) || (code ?? 'failed')}`, {
        cause,
      });
    } finally {
      clearTimeout(timer);
      outgoing.destroy();
    }
  }

  #accepted(request: EngineRequest, status: number, bytes: Buffer): Buffer {
    if (status < 300) return bytes;
    const isSmall = excessIn(bytes, { values: 1_000, containers: 1_000, depth: 32 }) === undefined;
    const detail =
      (isSmall ? detailOf(parsed(bytes)) : undefined) ??
      (bytes.toString('utf8', 0, 500) || 'no reason given');
    const message = `${this.#shown(request)} was answered with ${status}: ${detail}`;
    if (status >= 500) throw new EngineDown(message);
    if (status === 401) throw new UserError(`${message}; ${keyRemedy}`);
    throw new EngineRefusal(message, status, detail);
  }
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}

/** The reason in an error answer: FastAPI's, vLLM's and SGLang's have different places for it. */
function detailOf(json: unknown): string | undefined {
  if (typeof json !== 'object' || json === null) return undefined;
  const { detail, error, message } = json as Record<string, unknown>;
  if (typeof detail === 'string') return detail;
  if (typeof message === 'string') return message;
  if (typeof error === 'string') return error;
  if (typeof error === 'object' && error !== null) return detailOf(error);
  return detail === undefined ? undefined : JSON.stringify(detail).slice(0, 500);
}
