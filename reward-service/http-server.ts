import type { IncomingMessage } from 'node:http';
import { lazily } from '../shared/base/remembered.js';
import {
  type ArrivalLimits,
  type HttpServer,
  pathOf,
  readBody,
  type Reply,
  serveHttp,
} from '../shared/service/http-server.js';
import { isSameKey } from '../shared/service/keys.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import type { Score } from '../shared/wire/scored-group.js';
import { countScores, httpSeconds, judgingSeconds } from './metrics.js';
import { openApiDocument } from './openapi.js';
import type { TextJudge } from './judge.js';
import { answerScoreRequest, RequestRefused } from './score-requests.js';
import { Turns } from './turns.js';

interface ScoreServerOptions {
  readonly host: string;
  readonly port: number;
  /** The key that clients of /score must send in X-API-Key, if any. */
  readonly key: string | undefined;
  readonly judge: TextJudge;
  readonly log: Logger;
  readonly turns?: Turns;
  /** Once it aborts, every answer closes its connection, so that clients switch to another replica. */
  readonly signal: AbortSignal;
  readonly arrival?: ArrivalLimits;
}

const maxBodyBytes = 1 << 20;
const defaultArrival: ArrivalLimits = { headersMs: 10_000, wholeMs: 10_000 };
const drainMs = 2_000; // time for pending answers when the server stops

/**
 * Serves `POST /score` for users outside NATS: JSON in, scores out; `GET /openapi.json` describes it.
 * Errors are JSON too, `{"error": "what is wrong"}`. Disposing lets pending requests finish.
 *
 * @throws {UserError} when the address cannot be bound.
 */
export async function serveScores(options: ScoreServerOptions): Promise<HttpServer> {
  const { host, port, judge, log, signal } = options;
  const description = lazily(() =>
    Promise.resolve(openApiDocument({ needsKey: options.key !== undefined })),
  );
  const routes: Readonly<Record<string, Route>> = {
    '/score': {
      method: 'POST',
      answer: async (request) => {
        refuseStranger(request, options.key);
        const body = await readBody(request, maxBodyBytes, tooLarge);
        return score(body.toString('utf8'));
      },
    },
    '/openapi.json': {
      method: 'GET',
      answer: description,
    },
  };
  async function answer(request: IncomingMessage): Promise<Answer> {
    try {
      const path = pathOf(request);
      const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
      if (route === undefined)
        throw new RequestRefused(404, `there is no ${path}; try POST /score`);
      if (request.method !== route.method) {
        throw new RequestRefused(405, `${path} takes ${route.method} only`);
      }
      return { status: 200, body: await route.answer(request) };
    } catch (err) {
      if (err instanceof RequestRefused) {
        const { status, message, retryAfterSeconds: after } = err;
        const headers = after === undefined ? {} : { 'retry-after': String(after) };
        return { status, body: { error: message }, headers };
      }
      if (!request.complete) return { status: 400, body: { error: 'the body ended early' } };
      log.error({ err }, 'request failed');
      return { status: 500, body: { error: 'the service failed; its log says how' } };
    }
  }

  const { turns = new Turns() } = options;
  async function score(body: string): Promise<Score | Score[]> {
    const { value, busyMs } = await turns.run(answerScoreRequest(judge, body));
    judgingSeconds.observe({ source: 'http' }, busyMs / 1_000);
    countScores([value].flat(), 'http');
    return value;
  }

  async function reply(request: IncomingMessage): Promise<Reply> {
    const stopTimer = httpSeconds.startTimer();
    const { status, body, headers } = await answer(request);
    stopTimer({ status });
    // After a refusal the client may still be sending, so its connection cannot be reused. A request that is too
    // large is an exception: its client is certainly still sending, and closing would show it a reset instead of the
    // refusal. So the rest of that request is read and dropped.
    const isLast = (status !== 200 && status !== 413) || signal.aborted;
    return {
      status,
      headers: {
        'content-type': 'application/json',
        ...headers,
        ...(isLast && { connection: 'close' }),
      },
      body: `${JSON.stringify(body)}\n`,
    };
  }

  return serveHttp({
    host,
    port,
    name: 'scores',
    portFlag: '--http-port',
    arrival: options.arrival ?? defaultArrival,
    drainMs,
    answer: reply,
    malformed: (error) => ({ error }),
    failed: (err) => {
      log.error({ err }, 'request failed');
    },
  });
}

interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Route {
  readonly method: 'GET' | 'POST';
  readonly answer: (request: IncomingMessage) => Promise<unknown>;
}

/** @throws {RequestRefused} 401 without a key, 403 with a wrong one. */
function refuseStranger({ headers }: IncomingMessage, key: string | undefined): void {
  if (key === undefined) return;
  const given = headers['x-api-key'];
  if (given === undefined)
    throw new RequestRefused(401, 'send the key of this service in X-API-Key');
  if (!isSameKey(String(given), key)) {
    throw new RequestRefused(403, 'the key in X-API-Key is not that of this service');
  }
}

function tooLarge(): RequestRefused {
  return new RequestRefused(413, `the body has more than ${maxBodyBytes} bytes; send several`);
}
