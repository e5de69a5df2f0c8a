import { createServer } from 'node:http';
import { collectDefaultMetrics, register } from 'prom-client';
import { errorText, UserError } from '../errors.js';
import { timeLimits } from '../show-out.js';
import { diskTrouble } from './disk-room.js';

/** Whether the service can do its work now, and if not, why. */
export interface Readiness {
  readonly isReady: boolean;
  readonly reason?: string;
}

export interface HealthServer extends AsyncDisposable {
  /** The port that it listens on, also when 0 was asked for. */
  readonly port: number;
}

/**
 * Serves what an orchestrator asks of a process: `/healthz` (it runs), `/readyz` (it can work; 503
 * with the reason when it cannot, a full disk first) and `/metrics` (every metric of this process, for Prometheus).
 *
 * @param patienceMs how long a request may take to arrive.
 * @throws {UserError} when the address cannot be bound.
 */
export async function serveHealth(
  host: string,
  port: number,
  readiness: () => Readiness,
  patienceMs = 10_000,
): Promise<HealthServer> {
  if (register.getSingleMetric('process_cpu_seconds_total') === undefined) collectDefaultMetrics();

  // What asks here has no body, and a stranger shall not keep a connection that says nothing.
  const limits = {
    ...timeLimits({ headersMs: patienceMs, wholeMs: patienceMs }),
    maxHeaderSize: 8_192,
  };
  const server = createServer(limits, (request, response) => {
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.writeHead(405, { allow: 'GET, HEAD', connection: 'close' }).end();
      return;
    }
    void answer(request.url ?? '/').then(
      ({ status, type, body }) => response.writeHead(status, { 'content-type': type }).end(body),
      () => response.writeHead(500, { 'content-type': 'text/plain' }).end('metrics failed\n'),
    );
  });

  async function answer(url: string): Promise<{ status: number; type: string; body: string }> {
    const text = (status: number, body: string) => ({ status, type: 'text/plain', body });
    switch (url.split('?')[0]) {
      case '/healthz':
        return text(200, 'ok\n');
      case '/readyz': {
        const { isReady, reason } = readiness();
        const trouble = diskTrouble() ?? (isReady ? undefined : (reason ?? 'not ready'));
        return text(trouble === undefined ? 200 : 503, `${trouble ?? 'ready'}\n`);
      }
      case '/metrics':
        return { status: 200, type: register.contentType, body: await register.metrics() };
      default:
        return text(404, 'try /healthz, /readyz or /metrics\n');
    }
  }

  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      reject(
        new UserError(
          `cannot serve health on ${host}:${port} (${errorText(error)}); choose another --health-port, or 0 for any`,
        ),
      );
    });
    server.listen(port, host, resolve);
  });
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
