import { addAbortListener, once } from 'node:events';
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorText, UserError } from '../base/errors.js';

/** How long a request may take to arrive, in milliseconds. */
export interface ArrivalLimits {
  readonly headersMs: number;
  readonly wholeMs: number;
}

export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | string;
}

interface HttpServerOptions {
  readonly host: string;
  readonly port: number; // 0: any free one
  /** The server's name and port flag, for the error if the address cannot be bound. */
  readonly name: string;
  readonly portFlag: string;
  readonly arrival: ArrivalLimits;
  readonly maxHeaderBytes?: number;
  readonly keepAliveMs?: number; // an idle connection is closed after it
  readonly drainMs?: number; // how long answers may take once the server stops; 0 by default
  /**
   * Answers a request, or returns undefined if it has taken over the response.
   *
   * @param gone aborts when the client goes away or the server stops.
   */
  answer(
    request: IncomingMessage,
    response: ServerResponse,
    gone: AbortSignal,
  ): Promise<Reply | undefined>;
  /** Builds the JSON body for a client that sends invalid HTTP, too large headers, or too slowly. */
  malformed(detail: string): object;
  /** Called when `answer` throws; the client's connection is then closed. */
  failed(error: unknown): void;
}

export interface HttpServer extends AsyncDisposable {
  /** The port it listens on, also if port 0 was requested. */
  readonly port: number;
}

/**
 * The HTTP server under every endpoint of Offbeat: bounded arrival of requests, a length on every
 * reply, and an orderly stop. Disposing aborts `gone` of the requests under way, waits `drainMs` for
 * their answers, and closes every connection.
 *
 * @throws {UserError} when the address cannot be bound.
 */
export async function serveHttp(options: HttpServerOptions): Promise<HttpServer> {
  const { arrival, maxHeaderBytes, keepAliveMs, drainMs = 0 } = options;
  const running = new Map<AbortController, Promise<void>>();
  let isStopping = false;

  const limits = {
    headersTimeout: arrival.headersMs,
    requestTimeout: arrival.wholeMs,
    connectionsCheckingInterval: arrival.headersMs / 4,
    ...(maxHeaderBytes !== undefined && { maxHeaderSize: maxHeaderBytes }),
    ...(keepAliveMs !== undefined && { keepAliveTimeout: keepAliveMs }),
  };
  const server = createServer(limits, (request, response) => {
    const gone = new AbortController();
    response.once('close', () => {
      gone.abort();
    });
    const answered = respond(request, response, gone.signal)
      .catch((error: unknown) => {
        options.failed(error);
        response.destroy();
      })
      .finally(() => running.delete(gone));
    running.set(gone, answered);
  });
  refuseMalformed(server, (detail) => options.malformed(detail));

  async function respond(
    request: IncomingMessage,
    response: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> {
    const reply = await options.answer(request, response, gone);
    if (reply === undefined || response.destroyed) return;
    const { status, headers, body } = reply;
    if (isStopping) response.setHeader('connection', 'close');
    // The Python SDK attributes a 400 without a length to a proxy and repeats the request for hours.
    if (status !== 204) response.setHeader('content-length', Buffer.byteLength(body));
    response.writeHead(status, headers).end(body);
  }

  await listen(server, options);
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      isStopping = true;
      for (const gone of running.keys()) gone.abort(); // long polls answer at once
      const drained = new AbortController();
      await Promise.race([
        Promise.allSettled(running.values()),
        sleep(drainMs, undefined, { signal: drained.signal }).catch(() => undefined),
      ]);
      drained.abort();
      server.closeAllConnections();
      await closed;
    },
  };
}

/**
 * Reads the whole body of a request.
 *
 * @param refuse creates the error for a body of more than `maxBytes`. The connection stays open, so that the
 *   refusal reaches a client that is still sending.
 * @param until aborts the reading. Without it, a body that has started to arrive is read to its end while the
 *   server drains.
 */
export async function readBody(
  request: IncomingMessage,
  maxBytes: number,
  refuse: () => Error,
  until?: AbortSignal,
): Promise<Buffer> {
  if (Number(request.headers['content-length']) > maxBytes) throw refuse();
  using _stop = until && addAbortListener(until, () => request.destroy());
  const parts: Buffer[] = [];
  let bytes = 0;
  const arriving: AsyncIterable<Buffer> = request.iterator({ destroyOnReturn: false });
  for await (const part of arriving) {
    bytes += part.byteLength;
    if (bytes > maxBytes) {
      request.resume(); // or a client that is still sending sees a reset instead of the refusal
      throw refuse();
    }
    parts.push(part);
  }
  return Buffer.concat(parts);
}

/** The path of a request without its query. */
export function pathOf(request: IncomingMessage): string {
  return (request.url ?? '/').split('?')[0]!;
}

/** Codes of an address that this machine does not have, or of a name that stands for none. */
const hostCodes = new Set(['ENOTFOUND', 'EAI_AGAIN', 'EADDRNOTAVAIL']);

/** Names the flag that moves a server whose address cannot be bound. */
export function cannotServe(
  { host, port, name, portFlag }: Pick<HttpServerOptions, 'host' | 'port' | 'name' | 'portFlag'>,
  cause: unknown,
): UserError {
  const isHost = hostCodes.has(String((cause as NodeJS.ErrnoException | undefined)?.code));
  const remedy = isHost ? portFlag.replace(/port$/, 'host') : `${portFlag}, or 0 for any`;
  return new UserError(
    `cannot serve ${name} on ${host}:${port} (${errorText(cause)}); choose another ${remedy}`,
    { cause },
  );
}

async function listen(server: Server, options: HttpServerOptions): Promise<void> {
  const listening = once(server, 'listening');
  server.listen(options.port, options.host);
  try {
    await listening;
  } catch (error) {
    throw cannotServe(options, error);
  }
}

function refuseMalformed(server: Server, malformed: HttpServerOptions['malformed']): void {
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    if (!socket.writable) return;
    const { status, detail } = explain(error);
    const body = JSON.stringify(malformed(detail));
    const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`;
    socket.end(`${head}${body}`, () => socket.destroy());
  });
}

function explain({ code, message }: NodeJS.ErrnoException): { status: number; detail: string } {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT')
    return { status: 408, detail: 'the request took too long to arrive' };
  if (code === 'HPE_HEADER_OVERFLOW') return { status: 431, detail: 'the headers are too large' };
  return { status: 400, detail: `this is not HTTP: ${message}` };
}
