import type { ServerResponse } from 'node:http';
import { safeHeaders } from './guard.js';
import { partsOf, type Parts } from './page/sections.js';
import type { RunView } from './run/run-view.js';

/** Each open page costs the parts that it was sent; nobody needs as many. */
const mostPages = 16;

/** The open pages of a run. Each is sent the parts of the page that have changed, as they change. */
export class Audience {
  /** With what each has been sent, by part. */
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
      if (this.#pages.size === 0) this.#rest();
    });
    if (this.#timer === undefined) void this.#tick();
  }

  /** Tells every page how the run is at last, and that this was all. */
  async close(): Promise<void> {
    if (this.#pages.size === 0) return;
    this.#rest();
    await this.#show();
    for (const page of this.#pages.keys()) page.end(event('over', ''));
  }

  /** Looks, tells, and does so again after a while, as long as there is somebody to tell. */
  async #tick(): Promise<void> {
    const timer = setTimeout(() => {
      if (this.#timer === timer) void this.#tick();
    }, this.#everyMs);
    this.#timer = timer;
    await this.#show();
  }

  #rest(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #show(): Promise<void> {
    const parts = partsOf(await this.#now());
    for (const [page, sent] of this.#pages) {
      if (page.writableNeedDrain) continue; // it gets what is new then, not all that was in between
      page.write(changes(parts, sent) || ': nothing new\n\n');
    }
  }
}

/** An event for each part that differs from what was sent, and notes it as sent. */
export function changes(parts: Parts, sent: Map<string, string>): string {
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
