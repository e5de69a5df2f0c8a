import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { addAbortListener, once } from 'node:events';
import { Counter } from 'prom-client';
import { errorText, PermanentError, UserError } from '../../shared/errors.js';
import { type Patience, showOut, timeLimits } from '../../shared/show-out.js';
import type { Logger } from '../../shared/telemetry/logger.js';
import { accessOf, type Access, type ApiKeys } from './api-key.js';
import { ApiError } from './api-error.js';
import { jsonReply, matchPath, type Reply, type Route } from './http-api.js';

const requestsTotal = new Counter({
  name: 'local_backend_requests_total',
  help: 'HTTP requests answered, by route and status.',
  labelNames: ['route', 'status'],
});

export interface HttpOptions extends ApiKeys {
  readonly host: string;
  readonly port: number; // 0: any
  readonly routes: readonly Route[];
  readonly log: Logger;
  readonly patience?: Patience;
}

export interface HttpServer extends AsyncDisposable {
  readonly port: number;
}

const maxBodyBytes = 64 * 1024 * 1024; // TuFT's limit; clients keep requests near 5 MB
const defaultPatience: Patience = { headersMs: 20_000, wholeMs: 120_000 };
const drainMs = 3_000; // how long answers under way may take when the server stops

/**
 * Serves the routes. Every refusal has a body `{"detail": …}`: clients take an empty 400 for a
 * proxy's.
 *
 * @throws {UserError} when the address cannot be bound.
 */
export async function serveHttp(options: HttpOptions): Promise<HttpServer> {
  const { host, port, routes, log } = options;
  const running = new Map<AbortController, Promise<void>>(); // what is being answered
  let isStopping = false;

  const limits = {
    ...timeLimits(options.patience ?? defaultPatience),
    keepAliveTimeout: 75_000, // longer than clients keep idle connections
  };
  const server = createServer(limits, (request, response) => {
    const gone = new AbortController(); // the client went away, or this server stops
    response.once('close', () => {
      gone.abort();
    });
    const answered = respond(request, response, gone.signal)
      .catch((error: unknown) => {
        log.error({ err: error }, 'answering failed');
        response.destroy();
      })
      .finally(() => running.delete(gone));
    running.set(gone, answered);
  });
  showOut(server, (detail) => ({ detail }));

  async function respond(
    request: IncomingMessage,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> {
    const route: { name: string } = { name: 'none' };
    const reply = await answer(request, signal, route).catch((error: unknown) => {
      return signal.aborted ? undefined : toReply(error, log, route.name);
    });
    if (reply === undefined || response.destroyed) return;
    requestsTotal.inc({ route: route.name, status: reply.status });
    if (isStopping) response.setHeader('connection', 'close');
    // The Python SDK takes a 400 without a length for a proxy's and repeats the request for hours.
    if (reply.status !== 204) response.setHeader('content-length', Buffer.byteLength(reply.body));
    response.writeHead(reply.status, reply.headers).end(reply.body);
  }

  async function answer(
    request: IncomingMessage,
    signal: AbortSignal,
    seen: { name: string },
  ): Promise<Reply> {
    const { pathname, query } = readUrl(request.url ?? '/');
    const here = routes.flatMap((route) => {
      const params = matchPath(route.path, pathname);
      return params === undefined ? [] : [{ route, params }];
    });
    const found = here.find(({ route }) => route.method === request.method);
    const isOpen = found?.route.access === 'open';
    const access: Access = isOpen ? 'all' : accessOf(request.headers, options);
    if (found === undefined) {
      if (here.length === 0) throw new ApiError(404, `${pathname} is not part of this API`);
      const allow = here.map(({ route }) => route.method).join(', ');
      const asked = `${request.method ?? ''} ${pathname}`;
      throw new ApiError(405, `${asked} is not part of this API; ${allow} is`, { allow });
    }
    seen.name = `${found.route.method} ${found.route.path}`;
    if (access === 'sampling' && found.route.access !== 'sampling') {
      throw new ApiError(
        403,
        `this API key may only sample; ${seen.name} takes the key that trains (--api-key of the backend)`,
      );
    }
    return found.route.handle({
      headers: request.headers,
      query,
      params: found.params.map(decode),
      signal,
      body: (maxBytes = maxBodyBytes) => readBody(request, maxBytes, signal),
    });
  }

  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      reject(
        new UserError(
          `cannot serve the Tinker API on ${host}:${port} (${errorText(error)}); choose another --port, or 0 for any`,
        ),
      );
    });
    server.listen(port, host, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      isStopping = true;
      for (const gone of running.keys()) gone.abort(); // long polls answer at once
      using patience = timeout(drainMs);
      await Promise.race([Promise.allSettled(running.values()), patience.over]);
      server.closeAllConnections();
      await closed;
    },
  };
}

async function readBody(
  request: IncomingMessage,
  maxBytes: number,
  signal: AbortSignal,
): Promise<Buffer> {
  const refuse = () => new ApiError(413, `the body is larger than ${maxBytes} bytes`);
  const encoding = request.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity') {
    throw new ApiError(415, `content-encoding ${encoding} is not supported; send it plain`);
  }
  if (Number(request.headers['content-length']) > maxBytes) throw refuse();
  using _stop = addAbortListener(signal, () => request.destroy());
  const parts: Buffer[] = [];
  let size = 0;
  const arriving = request.iterator({ destroyOnReturn: false }); // the refusal needs the connection
  for await (const part of arriving as AsyncIterable<Buffer>) {
    size += part.byteLength;
    if (size > maxBytes) {
      request.resume(); // or the client, still sending, would see a reset and not the refusal
      throw refuse();
    }
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function readUrl(text: string): { pathname: string; query: URLSearchParams } {
  const [pathname = '/', query = ''] = text.split('?', 2);
  return { pathname, query: new URLSearchParams(query) };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new ApiError(400, `${JSON.stringify(part)} in the path is not percent-encoded text`);
  }
}

function toReply(error: unknown, log: Logger, route: string): Reply {
  if (error instanceof ApiError) {
    const reply = jsonReply(error.status, { detail: error.detail });
    return { ...reply, headers: { ...reply.headers, ...error.headers } };
  }
  if (error instanceof PermanentError) return jsonReply(400, { detail: error.message });
  // What went wrong inside is for the log; the caller gets the number to find it by.
  const id = randomUUID();
  log.error({ err: error, route, id }, 'request failed');
  return jsonReply(500, { detail: `Server error ${id}: the log of the backend tells of it` });
}

function timeout(ms: number): { over: Promise<void> } & Disposable {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return {
    over,
    [Symbol.dispose]() {
      clearTimeout(timer);
    },
  };
}
