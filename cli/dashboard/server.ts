import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { pathOf, type Reply, serveHttp } from '../../shared/service/http-server.js';
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
  const answer = async (
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<Reply | undefined> => {
    const refusal = refusalOf(request.method, request.headers.host);
    if (refusal !== undefined) return reply(refusal.status, 'text/plain', refusal.reason);
    const path = pathOf(request);
    if (path !== '/events') {
      const failed = () => reply(500, 'text/plain', 'the page could not be made\n');
      return page(path, now).catch(failed);
    }
    if (audience.isFull) return reply(503, 'text/plain', 'too many pages are open\n');
    audience.add(response);
    return undefined;
  };
  const server = await serveHttp({
    host: '127.0.0.1',
    port,
    name: 'the dashboard',
    portFlag: '--dashboard-port',
    arrival: { headersMs: patienceMs, wholeMs: patienceMs },
    maxHeaderBytes: 8_192,
    answer,
    malformed: (detail) => ({ detail }),
    failed: () => undefined,
  });
  return {
    url: `http://127.0.0.1:${server.port}/`,
    async [Symbol.asyncDispose]() {
      await audience.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#0072b2"/>' +
  '<polyline points="2,12 6,9 9,10 14,3" fill="none" stroke="#fff" stroke-width="2"/></svg>';

/** What the page's script is made of, as the compiler left it beside this file. */
const scripts = ['main.js', 'morph.js'];

async function page(path: string, now: DashboardOptions['now']): Promise<Reply> {
  if (path === '/') return reply(200, 'text/html; charset=utf-8', livePage(await now()));
  if (path === '/style.css') return reply(200, 'text/css; charset=utf-8', pageStyle);
  if (path === '/icon.svg') return reply(200, 'image/svg+xml', icon);
  const script = scripts.find((name) => path === `/page/${name}`);
  if (script !== undefined) {
    const text = await readFile(new URL(`./browser/${script}`, import.meta.url), 'utf8');
    return reply(200, 'text/javascript; charset=utf-8', text);
  }
  return reply(404, 'text/plain', 'there is nothing here; the page is at /\n');
}

function reply(status: number, type: string, body: string): Reply {
  return { status, headers: { ...safeHeaders, 'content-type': type }, body };
}
