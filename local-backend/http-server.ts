import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { Counter } from 'prom-client';
import { PermanentError } from '../shared/base/errors.js';
import {
  type ArrivalLimits,
  type HttpServer,
  readBody,
  type Reply,
  serveHttp,
} from '../shared/service/http-server.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import {
  type Access,
  accessOf,
  ApiError,
  type ApiKeys,
  jsonReply,
  matchPath,
  type Route,
} from './http-api.js';

const requestsTotal = new Counter({
  name: 'local_backend_requests_total',
  help: 'HTTP requests answered, by route and status.',
  labelNames: ['route', 'status'],
});

interface ApiServerOptions extends ApiKeys {
  readonly host: string;
  readonly port: number; // 0 picks a free one
  readonly routes: readonly Route[];
  readonly log: Logger;
  readonly arrival?: ArrivalLimits;
}

const maxBodyBytes = 64 * 1024 * 1024; // TuFT's limit; clients keep requests near 5 MB
const defaultArrival: ArrivalLimits = { headersMs: 20_000, wholeMs: 120_000 };
const drainMs = 3_000; // how long responses in progress may take when the server stops

/**
 * Serves the routes. Every refusal has a body `{"detail": …}`: clients attribute an empty 400 to a
 * proxy.
 *
 * @throws {UserError} when the address cannot be bound.
 */
export function serveApi(options: ApiServerOptions): Promise<HttpServer> {
  const { host, port, routes, log } = options;

  async function reply(request: IncomingMessage, signal: AbortSignal): Promise<Reply | undefined> {
    const route: { name: string } = { name: 'none' };
    const sent = await answer(request, signal, route).catch((error: unknown) => {
      return signal.aborted ? undefined : toReply(error, log, route.name);
    });
    if (sent !== undefined) requestsTotal.inc({ route: route.name, status: sent.status });
    return sent;
  }

  async function answer(
    request: IncomingMessage,
    signal: AbortSignal,
    matched: { name: string },
  ): Promise<Reply> {
    const { pathname, query } = readUrl(request.url ?? '/');
    const onPath = routes.flatMap((route) => {
      const params = matchPath(route.path, pathname);
      return params === undefined ? [] : [{ route, params }];
    });
    const found = onPath.find(({ route }) => route.method === request.method);
    const isOpen = found?.route.access === 'open';
    const access: Access = isOpen ? 'all' : accessOf(request.headers, options);
    if (found === undefined) {
      if (onPath.length === 0) throw new ApiError(404, `${pathname} is not part of this API`);
      const allow = onPath.map(({ route }) => route.method).join(', ');
      const asked = `${request.method ?? ''} ${pathname}`;
      throw new ApiError(405, `${asked} is not part of this API; ${allow} is`, { allow });
    }
    matched.name = `${found.route.method} ${found.route.path}`;
    if (access === 'sampling' && found.route.access !== 'sampling') {
      throw new ApiError(
        403,
        `this API key permits only sampling; ${matched.name} requires the full key (--api-key of the backend)`,
      );
    }
    return found.route.handle({
      headers: request.headers,
      access,
      query,
      params: found.params.map(decode),
      signal,
      body: async (maxBytes = maxBodyBytes) => {
        refuseEncoded(request);
        const tooLarge = () => new ApiError(413, `the body is larger than ${maxBytes} bytes`);
        return readBody(request, maxBytes, tooLarge, signal);
      },
    });
  }

  return serveHttp({
    host,
    port,
    name: 'the Tinker API',
    portFlag: '--port',
    arrival: options.arrival ?? defaultArrival,
    keepAliveMs: 75_000, // longer than clients keep idle connections
    drainMs,
    answer: (request, _response, signal) => reply(request, signal),
    malformed: (detail) => ({ detail }),
    failed: (error) => {
      log.error({ err: error }, 'response failed');
    },
  });
}

function refuseEncoded({ headers }: IncomingMessage): void {
  const encoding = headers['content-encoding'];
  if (encoding === undefined || encoding === 'identity') return;
  throw new ApiError(415, `content-encoding ${encoding} is not supported; send it plain`);
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
  // The details of an internal error go to the log only; the caller gets an id to find them by.
  const id = randomUUID();
  log.error({ err: error, route, id }, 'request failed');
  return jsonReply(500, { detail: `Server error ${id}; see the log of the backend` });
}
