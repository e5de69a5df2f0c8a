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

export interface ApiServerOptions extends ApiKeys {
  readonly host: string;
  readonly port: number; // 0: any
  readonly routes: readonly Route[];
  readonly log: Logger;
  readonly arrival?: ArrivalLimits;
}

const maxBodyBytes = 64 * 1024 * 1024; // TuFT's limit; clients keep requests near 5 MB
const defaultArrival: ArrivalLimits = { headersMs: 20_000, wholeMs: 120_000 };
const drainMs = 3_000; // how long answers under way may take when the server stops

/**
 * Serves the routes. Every refusal has a body `{"detail": …}`: clients take an empty 400 for a
 * proxy's.
 *
 * @throws {UserError} when the address cannot be bound.
 */
export function serveApi(options: ApiServerOptions): Promise<HttpServer> {
  const { host, port, routes, log } = options;

  async function reply(request: IncomingMessage, gone: AbortSignal): Promise<Reply | undefined> {
    const route: { name: string } = { name: 'none' };
    const made = await answer(request, gone, route).catch((error: unknown) => {
      return gone.aborted ? undefined : toReply(error, log, route.name);
    });
    if (made !== undefined) requestsTotal.inc({ route: route.name, status: made.status });
    return made;
  }

  async function answer(
    request: IncomingMessage,
    gone: AbortSignal,
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
      access,
      query,
      params: found.params.map(decode),
      signal: gone,
      body: async (maxBytes = maxBodyBytes) => {
        refuseEncoded(request);
        const tooLarge = () => new ApiError(413, `the body is larger than ${maxBytes} bytes`);
        return readBody(request, maxBytes, tooLarge, gone);
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
    answer: (request, _response, gone) => reply(request, gone),
    malformed: (detail) => ({ detail }),
    failed: (error) => {
      log.error({ err: error }, 'answering failed');
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
  // What went wrong inside is for the log; the caller gets the number to find it by.
  const id = randomUUID();
  log.error({ err: error, route, id }, 'request failed');
  return jsonReply(500, { detail: `Server error ${id}: the log of the backend tells of it` });
}
