import { readFile } from 'node:fs/promises';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { timeLimits } from '../../../shared/show-out.js';
import { dashboardPortError } from '../processes/free-port.js';
import { Audience } from './audience.js';
import { refusalOf, safeHeaders } from './guard.js';
import { livePage } from './page/document.js';
import { pageStyle } from './page/style.js';
import type { RunView } from './run/run-view.js';

export interface DashboardOptions {
  readonly port: number; // on loopback; 0: any free one
  /** The run as it is now; asked for while somebody looks, and never otherwise. */
  readonly now: () => Promise<RunView>;
  readonly everyMs: number; // between two looks
  readonly patienceMs?: number; // for a request to arrive; 10 s
}

export interface Dashboard extends AsyncDisposable {
  readonly url: string;
}

/**
 * Serves the page of a run on loopback. When it is disposed of, open pages are told how the run is at
 * last, and that no more will come.
 *
 * @throws {UserError} when the port cannot be had.
 */
export async function serveDashboard(options: DashboardOptions): Promise<Dashboard> {
  const { port, now, everyMs, patienceMs = 10_000 } = options;
  const audience = new Audience(now, everyMs);
  const times = timeLimits({ headersMs: patienceMs, wholeMs: patienceMs });
  const limits = { ...times, maxHeaderSize: 8_192 };
  const server = createServer(limits, (request, response) => {
    const refusal = refusalOf(request.method, request.headers.host);
    if (refusal !== undefined) {
      send(response, refusal.status, 'text/plain', refusal.reason);
      return;
    }
    const path = (request.url ?? '/').split('?')[0]!;
    if (path === '/events') {
      if (audience.isFull) send(response, 503, 'text/plain', 'too many pages are open\n');
      else audience.add(response);
      return;
    }
    answer(path, now).then(
      ({ status, type, body }) => {
        send(response, status, type, body);
      },
      () => {
        send(response, 500, 'text/plain', 'the page could not be made\n');
      },
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error) => {
      reject(dashboardPortError(port, error));
    });
    server.listen(port, '127.0.0.1', resolve);
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async [Symbol.asyncDispose]() {
      await audience.close();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#0072b2"/>' +
  '<polyline points="2,12 6,9 9,10 14,3" fill="none" stroke="#fff" stroke-width="2"/></svg>';

/** What the page's script is made of, as the compiler left it beside this file. */
const scripts = ['main.js', 'morph.js'];

async function answer(path: string, now: DashboardOptions['now']): Promise<Answer> {
  const ok = (type: string, body: string) => ({ status: 200, type, body });
  if (path === '/') return ok('text/html; charset=utf-8', livePage(await now()));
  if (path === '/style.css') return ok('text/css; charset=utf-8', pageStyle);
  if (path === '/icon.svg') return ok('image/svg+xml', icon);
  const script = scripts.find((name) => path === `/page/${name}`);
  if (script !== undefined) {
    const text = await readFile(new URL(`./browser/${script}`, import.meta.url), 'utf8');
    return ok('text/javascript; charset=utf-8', text);
  }
  return { status: 404, type: 'text/plain', body: 'there is nothing here; the page is at /\n' };
}

function send(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { ...safeHeaders, 'content-type': type }).end(body);
}
