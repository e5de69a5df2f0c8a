import { createServer, type IncomingMessage } from 'node:http';
import { errorText, UserError } from '../shared/errors.js';
import { isSameKey } from '../shared/keys.js';
import { type Patience, showOut, timeLimits } from '../shared/show-out.js';
import type { Logger } from '../shared/telemetry/logger.js';
import type { Score } from '../shared/wire/scored-group.js';
import { countScores, httpSeconds, judgingSeconds } from './metrics.js';
import { openApiDocument } from './openapi.js';
import type { TextJudge } from './judge.js';
import { answerScoreRequest, RequestRefused } from './score-requests.js';
import { Turns } from './turns.js';

export interface ScoreServer extends AsyncDisposable {
  /** The port that it listens on, also when 0 was asked for. */
  readonly port: number;
}

export interface ScoreServerOptions {
  readonly host: string;
  readonly port: number;
  /** What clients of /score must send in X-API-Key, if anything. */
  readonly key: string | undefined;
  readonly judge: TextJudge;
  readonly log: Logger;
  /** From its abort on, answers are the last on their connection, so that clients go elsewhere. */
  readonly signal: AbortSignal;
  readonly patience?: Patience;
}

const maxBodyBytes = 1 << 20;
const defaultPatience: Patience = { headersMs: 10_000, wholeMs: 10_000 };

/**
 * Serves `POST /score` for users outside NATS: JSON in, scores out; `GET /openapi.json` describes it.
 * Errors are JSON too, `{"error": "what is wrong"}`. Disposing lets the requests under way finish.
 *
 * @throws {UserError} when the address cannot be bound.
 */
export async function serveScores(options: ScoreServerOptions): Promise<ScoreServer> {
  const { host, port, judge, log, signal } = options;
  const routes: Readonly<Record<string, Route>> = {
    '/score': {
      method: 'POST',
      answer: async (request) => {
        refuseStranger(request, options.key);
        return score(await readBody(request));
      },
    },
    '/openapi.json': {
      method: 'GET',
      answer: () => Promise.resolve(openApiDocument({ needsKey: options.key !== undefined })),
    },
  };
  const limits = timeLimits(options.patience ?? defaultPatience);
  const server = createServer(limits, (request, response) => {
    const stopTimer = httpSeconds.startTimer();
    void answer(request).then(({ status, body }) => {
      // A refused request may still be sending: its connection is of no further use.
      const isLast = status !== 200 || signal.aborted;
      const headers = isLast ? { connection: 'close' } : {};
      response.writeHead(status, { 'content-type': 'application/json', ...headers });
      response.end(`${JSON.stringify(body)}\n`);
      stopTimer({ status });
    });
  });
  showOut(server, (error) => ({ error }));

  async function answer(request: IncomingMessage): Promise<{ status: number; body: unknown }> {
    try {
      const path = request.url?.split('?')[0] ?? '';
      const route = Object.hasOwn(routes, path) ? routes[path] : undefined;
      if (route === undefined)
        throw new RequestRefused(404, `there is no ${path}; try POST /score`);
      if (request.method !== route.method) {
        throw new RequestRefused(405, `${path} takes ${route.method} only`);
      }
      return { status: 200, body: await route.answer(request) };
    } catch (err) {
      if (err instanceof RequestRefused)
        return { status: err.status, body: { error: err.message } };
      if (!request.complete) return { status: 400, body: { error: 'the body ended early' } };
      log.error({ err }, 'request failed');
      return { status: 500, body: { error: 'the service failed; its log says how' } };
    }
  }

  const turns = new Turns();
  async function score(body: string): Promise<Score | Score[]> {
    const { value, busyMs } = await turns.run(answerScoreRequest(judge, body));
    judgingSeconds.observe({ source: 'http' }, busyMs / 1_000);
    countScores([value].flat(), 'http');
    return value;
  }

  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      reject(
        new UserError(
          `cannot serve scores on ${host}:${port} (${errorText(error)}); choose another --http-port, or 0 for any`,
        ),
      );
    });
    server.listen(port, host, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    async [Symbol.asyncDispose]() {
      const lastCall = setTimeout(() => {
        server.closeAllConnections();
      }, 2_000);
      await new Promise((resolve) => server.close(resolve));
      clearTimeout(lastCall);
    },
  };
}

interface Route {
  readonly method: 'GET' | 'POST';
  readonly answer: (request: IncomingMessage) => Promise<unknown>;
}

/** @throws {RequestRefused} 401 without the key, 403 with another. */
function refuseStranger({ headers }: IncomingMessage, key: string | undefined): void {
  if (key === undefined) return;
  const given = headers['x-api-key'];
  if (given === undefined)
    throw new RequestRefused(401, 'send the key of this service in X-API-Key');
  if (!isSameKey(String(given), key)) {
    throw new RequestRefused(403, 'the key in X-API-Key is not that of this service');
  }
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  // Kept open when we stop reading, for the refusal still has to go back.
  const body: AsyncIterable<Buffer> = request.iterator({ destroyOnReturn: false });
  for await (const chunk of body) {
    bytes += chunk.byteLength;
    if (bytes > maxBodyBytes) {
      throw new RequestRefused(413, `the body has more than ${maxBodyBytes} bytes; send several`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
