import { readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { packageRoot } from '../../shared/base/package-root.js';
import { pathOf, type Reply, serveHttp } from '../../shared/service/http-server.js';
import { livePage, partsOf, type Parts } from './page/document.js';
import { pageStyle } from './page/style.js';
import type { RunView } from './run/run-view.js';

export interface DashboardOptions {
  readonly port: number; // on loopback; 0: any free one
  /** Returns the current state of the run; called only while a page is open. */
  readonly now: () => Promise<RunView>;
  readonly everyMs: number; // between two updates
  readonly patienceMs?: number; // for a request to arrive; 10 s
}

export interface Dashboard extends AsyncDisposable {
  readonly url: string;
}

/**
 * Serves the page of a run on loopback. Disposing sends open pages the final state and the end of the
 * updates.
 *
 * @throws {UserError} if the port cannot be used.
 */
export async function serveDashboard(options: DashboardOptions): Promise<Dashboard> {
  const { port, now, everyMs, patienceMs = 10_000 } = options;
  const pages = new OpenPages(now, everyMs);
  const answer = async (
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<Reply | undefined> => {
    const refusal = refusalOf(request.method, request.headers.host);
    if (refusal !== undefined) return reply(refusal.status, 'text/plain', refusal.reason);
    const path = pathOf(request);
    if (path !== '/events') {
      const failed = () => reply(500, 'text/plain', 'the page could not be created\n');
      return page(path, now).catch(failed);
    }
    if (pages.isFull) return reply(503, 'text/plain', 'too many pages are open\n');
    pages.add(response);
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
      await pages.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

const icon =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#0072b2"/>' +
  '<polyline points="2,12 6,9 9,10 14,3" fill="none" stroke="#fff" stroke-width="2"/></svg>';

/** The page's compiled scripts, in the folder beside this file. */
const scripts = ['main.js', 'morph.js'];

async function page(path: string, now: DashboardOptions['now']): Promise<Reply> {
  if (path === '/') return reply(200, 'text/html; charset=utf-8', livePage(await now()));
  if (path === '/style.css') return reply(200, 'text/css; charset=utf-8', pageStyle);
  if (path === '/icon.svg') return reply(200, 'image/svg+xml', icon);
  const script = scripts.find((name) => path === `/page/${name}`);
  if (script !== undefined) {
    const text = await readFile(`${packageRoot}dist/cli/dashboard/browser/${script}`, 'utf8');
    return reply(200, 'text/javascript; charset=utf-8', text);
  }
  return reply(404, 'text/plain', 'there is nothing here; the page is at /\n');
}

function reply(status: number, type: string, body: string): Reply {
  return { status, headers: { ...safeHeaders, 'content-type': type }, body };
}

/** Maximum number of open pages: memory is kept for the parts that each page was sent. */
const mostPages = 16;

/** The open pages of a run. Each page receives the parts that have changed, as they change. */
class OpenPages {
  /** The markup that each page was sent last, by part. */
  readonly #pages = new Map<ServerResponse, Map<string, string>>();
  readonly #now: () => Promise<RunView>;
  readonly #everyMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(now: () => Promise<RunView>, everyMs: number) {
    this.#now = now;
    this.#everyMs = everyMs;
  }

  get isFull(): boolean {
    return this.#pages.size >= mostPages;
  }

  /** Sends events to a page until it closes. */
  add(response: ServerResponse): void {
    response.writeHead(200, { ...safeHeaders, 'content-type': 'text/event-stream' });
    response.write('retry: 2000\n\n');
    this.#pages.set(response, new Map());
    response.on('close', () => {
      this.#pages.delete(response);
      if (this.#pages.size === 0) this.#stopUpdates();
    });
    if (this.#timer === undefined) void this.#update();
  }

  /** Sends every page the final state of the run and the event that ends the updates. */
  async close(): Promise<void> {
    if (this.#pages.size === 0) return;
    this.#stopUpdates();
    await this.#sendChanges();
    for (const page of this.#pages.keys()) page.end(event('over', ''));
  }

  /** Sends an update, and schedules the next one while any page is open. */
  async #update(): Promise<void> {
    const timer = setTimeout(() => {
      // A long run takes long to read: the next update waits for this one.
      void sending.then(() => {
        if (this.#timer === timer) void this.#update();
      });
    }, this.#everyMs);
    this.#timer = timer;
    const sending = this.#sendChanges();
    await sending;
  }

  #stopUpdates(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #sendChanges(): Promise<void> {
    const parts = partsOf(await this.#now());
    for (const [page, sent] of this.#pages) {
      if (page.writableNeedDrain) continue; // a slow page skips updates and gets the newest one later
      page.write(changes(parts, sent) || ': nothing new\n\n');
    }
  }
}

/** Returns an event for each part that differs from what was sent, and records it as sent. */
function changes(parts: Parts, sent: Map<string, string>): string {
  return [...parts]
    .filter(([id, markup]) => sent.get(id) !== markup)
    .map(([id, markup]) => {
      sent.set(id, markup);
      return event('part', JSON.stringify({ id, markup }));
    })
    .join('');
}

/** @param data in one line, as JSON is. */
function event(name: string, data: string): string {
  return `event: ${name}\ndata: ${data}\n\n`;
}

/** The status and reason of a refused request. */
interface Refusal {
  readonly status: 405 | 421;
  readonly reason: string;
}

/** Loopback host names with any port: a tunnel may use another port than the server. */
const ownNames = /^(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?$/i;

/**
 * Returns why a request is refused: it is not a GET, or its Host header is not a loopback name. Without the
 * second check a foreign page could resolve its own name to loopback and read everything here.
 */
export function refusalOf(
  method: string | undefined,
  host: string | undefined,
): Refusal | undefined {
  if (method !== 'GET') return { status: 405, reason: 'only GET is answered\n' };
  if (host === undefined || !ownNames.test(host)) {
    return { status: 421, reason: 'open this page as localhost or 127.0.0.1\n' };
  }
  return undefined;
}

/** Security headers of every response: the page loads resources from this server only. */
const safeHeaders: Readonly<Record<string, string>> = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
  'cache-control': 'no-store',
};
