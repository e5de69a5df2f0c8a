import { createServer, type IncomingMessage } from 'node:http';
import { errorText, UserError } from '../shared/errors.js';
import type { Logger } from '../shared/telemetry/logger.js';
import { countScores } from './metrics.js';
import { answerScoreRequest, RequestRefused, type TextJudge } from './score-requests.js';

export interface ScoreServer extends AsyncDisposable {
  /** The port that it listens on, also when 0 was asked for. */
  readonly port: number;
}

export interface ScoreServerOptions {
  readonly host: string;
  readonly port: number;
  readonly judge: TextJudge;
  readonly log: Logger;
}

const maxBodyBytes = 1 << 20;

/**
 * Serves `POST /score` for users outside NATS: JSON in, scores out. Errors are JSON too,
 * `{"error": "what is wrong"}`. Disposing lets the requests under way finish.
 *
 * @throws {UserError} when the address cannot be bound.
 */
export async function serveScores(options: ScoreServerOptions): Promise<ScoreServer> {
  const { host, port, judge, log } = options;
  const server = createServer({ requestTimeout: 10_000 }, (request, response) => {
    void answer(request).then(({ status, body }) => {
      // A refused request may still be sending: its connection is of no further use.
      const headers = status === 200 ? {} : { connection: 'close' };
      response.writeHead(status, { 'content-type': 'application/json', ...headers });
      response.end(`${JSON.stringify(body)}\n`);
    });
  });

  async function answer(request: IncomingMessage): Promise<{ status: number; body: unknown }> {
    try {
      if (request.url?.split('?')[0] !== '/score') throw new RequestRefused(404, 'try POST /score');
      if (request.method !== 'POST') throw new RequestRefused(405, '/score takes POST only');
      const body = answerScoreRequest(judge, await readBody(request));
      countScores([body].flat(), 'http');
      return { status: 200, body };
    } catch (err) {
      if (err instanceof RequestRefused)
        return { status: err.status, body: { error: err.message } };
      if (!request.complete) return { status: 400, body: { error: 'the body ended early' } };
      log.error({ err }, 'request failed');
      return { status: 500, body: { error: 'the service failed; its log says how' } };
    }
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
