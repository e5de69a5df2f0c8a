import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pino } from 'pino';
import { TinkerClient, type TinkerClientOptions } from '../../../shared/tinker/client.js';

/** A request as it came over the wire. */
export interface Seen {
  readonly method: string;
  readonly path: string; // below /api/v1/
  readonly headers: IncomingMessage['headers'];
  readonly body: Buffer;
  /** The body as JSON; an error if it is none. */
  readonly json: Record<string, unknown>;
}

/** One answer: JSON of a status, bytes of a content type, a cut connection, or silence. */
export type Reply =
  | { readonly status?: number; readonly json: unknown; readonly headers?: Record<string, string> }
  | { readonly status?: number; readonly bytes: Uint8Array | string; readonly type: string }
  | { readonly status: number; readonly headers: Record<string, string> }
  | 'cut' // the connection is destroyed after the request was read
  | 'hang';

type Handler = (request: Seen) => Reply | Promise<Reply>;

/**
 * A real HTTP server that plays a script: each path has a handler, and every request is kept, in
 * order, for assertions. It answers the handshake like TuFT unless told otherwise.
 */
export class ScriptedServer implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly #handlers = new Map<string, Handler>();
  readonly #server = createServer((request, response) => void this.#answer(request, response));

  static async start(): Promise<ScriptedServer> {
    const server = new ScriptedServer();
    await new Promise<void>((resolve) => server.#server.listen(0, '127.0.0.1', resolve));
    server.on('POST client/config', () => ({ json: { pjwt_auth_enabled: false } }));
    server.on('GET get_server_capabilities', () => ({
      json: { supported_models: [{ model_name: 'base', max_context_length: 64 }] },
    }));
    let sessions = 0;
    server.on('POST create_session', () => ({
      status: 201,
      json: { type: 'create_session', session_id: `session-${++sessions}`, info_message: null },
    }));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Answers every request of `route`, as in "POST optim_step". */
  on(route: string, handler: Handler): void {
    this.#handlers.set(route, handler);
  }

  /** Answers the requests of `route` by one reply after the other, the last one for ever. */
  script(route: string, ...replies: [Reply, ...Reply[]]): void {
    let next = 0;
    this.on(route, () => replies[Math.min(next++, replies.length - 1)]!);
  }

  /** The requests of a path so far. */
  sent(path: string): Seen[] {
    return this.seen.filter((request) => request.path === path);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const body = Buffer.concat(parts);
    const [pathname = ''] = (request.url ?? '').split('?');
    const seen: Seen = {
      method: request.method ?? '',
      path: pathname.replace(/^.*?\/api\/v1\//, ''),
      headers: request.headers,
      body,
      get json() {
        return JSON.parse(body.toString()) as Record<string, unknown>;
      },
    };
    this.seen.push(seen);
    const handler = this.#handlers.get(`${seen.method} ${seen.path}`);
    const reply = await (handler?.(seen) ?? { status: 404, json: { detail: 'Not Found' } });
    if (reply === 'hang') return;
    if (reply === 'cut') {
      request.socket.destroy();
      return;
    }
    if ('bytes' in reply) {
      response.writeHead(reply.status ?? 200, { 'content-type': reply.type }).end(reply.bytes);
    } else if ('json' in reply) {
      const headers = { 'content-type': 'application/json', ...reply.headers };
      response.writeHead(reply.status ?? 200, headers).end(JSON.stringify(reply.json));
    } else {
      response.writeHead(reply.status, reply.headers).end();
    }
  }
}

/** Time that passes only while the client sleeps, and then at once. */
export class FakeTime {
  readonly slept: number[] = []; // ms
  #now = 0;

  readonly now = () => this.#now;
  readonly sleep = async (ms: number, signal: AbortSignal): Promise<void> => {
    signal.throwIfAborted();
    this.slept.push(ms);
    this.#now += ms;
    await Promise.resolve();
  };
}

/** A client of `server` in fake time. Its log lines are kept in `lines`. */
export async function connectTo(
  server: ScriptedServer,
  options: Partial<TinkerClientOptions> & { lines?: string[] } = {},
): Promise<{ client: TinkerClient; time: FakeTime }> {
  const { lines = [], ...rest } = options;
  const time = new FakeTime();
  const client = await TinkerClient.connect({
    baseUrl: server.url,
    apiKey: 'tml-test',
    log: pino({}, { write: (line: string) => void lines.push(line) }),
    signal: new AbortController().signal,
    sleep: time.sleep,
    now: time.now,
    random: () => 0,
    ...rest,
  });
  return { client, time };
}
