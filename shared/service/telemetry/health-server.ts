import { collectDefaultMetrics, register } from 'prom-client';
import { type HttpServer, pathOf, type Reply, serveHttp } from '../http-server.js';
import { diskTrouble } from './disk-room.js';

/**
 * Serves the probes of an orchestrator: `/healthz` (the process runs), `/readyz` (it can work, else 503 with
 * the reason, a full disk first) and `/metrics` (all metrics of this process, for Prometheus).
 *
 * @param unready returns why the service cannot work now; undefined if it can.
 * @param patienceMs how long a request may take to arrive.
 * @throws {UserError} when the address cannot be bound.
 */
export async function serveHealth(
  host: string,
  port: number,
  unready: () => string | undefined,
  patienceMs = 10_000,
): Promise<HttpServer> {
  if (register.getSingleMetric('process_cpu_seconds_total') === undefined) {
    // By default the lag is looked at every 10 ms, which takes 0.4 % of a core of a process that does nothing.
    collectDefaultMetrics({ eventLoopMonitoringPrecision: 50 });
  }

  return serveHttp({
    host,
    port,
    name: 'health',
    portFlag: '--health-port',
    // Idle connections are closed: these requests have no body.
    arrival: { headersMs: patienceMs, wholeMs: patienceMs },
    maxHeaderBytes: 8_192,
    answer: (request) =>
      request.method === 'GET' || request.method === 'HEAD'
        ? answer(pathOf(request), unready).catch(() => text(500, 'metrics failed\n'))
        : Promise.resolve({
            ...text(405, ''),
            headers: { allow: 'GET, HEAD', connection: 'close' },
          }),
    malformed: (detail) => ({ detail }),
    failed: () => undefined,
  });
}

async function answer(path: string, unready: () => string | undefined): Promise<Reply> {
  switch (path) {
    case '/healthz':
      return text(200, 'ok\n');
    case '/readyz': {
      const reason = unready();
      const trouble = diskTrouble() ?? reason;
      return text(trouble === undefined ? 200 : 503, `${trouble ?? 'ready'}\n`);
    }
    case '/metrics':
      return {
        status: 200,
        headers: { 'content-type': register.contentType },
        body: await register.metrics(),
      };
    default:
      return text(404, 'try /healthz, /readyz or /metrics\n');
  }
}

function text(status: number, body: string): Reply {
  return { status, headers: { 'content-type': 'text/plain' }, body };
}
