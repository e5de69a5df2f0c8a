import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';

/** The fault of one request: the server does the work but its answer is lost, or the request never arrives. */
export type Mishap =
  | { readonly kind: 'answer lost' }
  | { readonly kind: 'request lost' }
  | { readonly kind: 'refused'; readonly status: number; readonly headers?: Record<string, string> }
  | { readonly kind: 'answer late'; readonly until: Promise<void> };

interface Planned {
  readonly path: string; // the end of a request's path
  readonly mishap: Mishap;
}

/**
 * A simulated network between a client and a server that fails as planned. Requests without a
 * plan pass through unchanged.
 */
export class Proxy implements AsyncDisposable {
  readonly #planned: Planned[] = [];
  readonly #server: Server;
  /** Each request that the server answered: `POST /api/v1/optim_step 202`. */
  readonly answered: string[] = [];

  private constructor(private readonly target: string) {
    this.#server = createServer((request, response) => {
      this.#pass(request, response).catch(() => {
        request.socket.destroy(); // the server is unreachable, so the proxy is too
      });
    });
  }

  static async start(target: string): Promise<Proxy> {
    const proxy = new Proxy(target);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Makes the next request with this path ending fail; each plan is used once, in order. */
  plan(path: string, mishap: Mishap): void {
    this.#planned.push({ path, mishap });
  }

  get isDone(): boolean {
    return this.#planned.length === 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '/';
    const index = this.#planned.findIndex((planned) => path.endsWith(planned.path));
    const mishap = index === -1 ? undefined : this.#planned.splice(index, 1)[0]!.mishap;

    const body = await buffer(request);
    if (mishap?.kind === 'request lost') return void request.socket.destroy();
    if (mishap?.kind === 'refused') {
      response.writeHead(mishap.status, { 'content-type': 'application/json', ...mishap.headers });
      return void response.end(JSON.stringify({ detail: 'refused by the test' }));
    }

    const headers = new Headers();
    for (const [name, value] of Object.entries(request.headers)) {
      if (!hopByHop.has(name) && typeof value === 'string') headers.set(name, value);
    }
    const answer = await fetch(this.target + path, {
      method: request.method ?? 'GET',
      headers,
      redirect: 'manual',
      ...(body.byteLength > 0 && { body: new Uint8Array(body) }),
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    this.answered.push(`${request.method ?? ''} ${path} ${answer.status}`);
    if (mishap?.kind === 'answer late') await mishap.until;
    if (mishap?.kind === 'answer lost') return void request.socket.destroy();
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    response.end(bytes);
  }
}

const hopByHop = new Set(['host', 'connection', 'content-length', 'transfer-encoding']);
