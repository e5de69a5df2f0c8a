import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** How a server answers one request for its file. */
export type FileAnswer = (request: IncomingMessage, response: ServerResponse) => void;

/** A server of one file with ranges and an ETag, which misbehaves as a test specifies. */
export class FileServer implements AsyncDisposable {
  readonly #server: Server;
  /** Each request: its path, with its range and its condition if it has them. */
  readonly asked: string[] = [];
  /** The answers to the next requests, in order; then the file is served properly. */
  mishaps: FileAnswer[] = [];
  /** How it answers without mishaps, if not properly. */
  always: FileAnswer | undefined;
  etag = '"1"';

  private constructor(public file: Uint8Array) {
    this.#server = createServer((request, response) => {
      const { range, 'if-range': condition } = request.headers;
      this.asked.push([request.url, range, condition].filter(Boolean).join(' '));
      const answer = this.mishaps.shift() ?? this.always ?? this.serve;
      answer(request, response);
    });
  }

  static async start(file: Uint8Array): Promise<FileServer> {
    const server = new FileServer(file);
    server.#server.listen(0, '127.0.0.1');
    await once(server.#server, 'listening');
    return server;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get url(): string {
    return `${this.origin}/adapter?signature=secret`;
  }

  /** The file, or the rest of it if the condition holds. */
  readonly serve: FileAnswer = (request, response) => {
    response.end(this.file.subarray(this.#begin(request, response)));
  };

  /** The same, but closes the connection after so many bytes. */
  breakAfter(bytes: number): FileAnswer {
    return (request, response) => {
      const from = this.#begin(request, response);
      // Not at once: a client that sees the connection close drops the bytes that it has not read yet.
      const close = () => setTimeout(() => response.destroy(), 50);
      response.write(this.file.subarray(from, from + bytes), close);
    };
  }

  #begin({ headers }: IncomingMessage, response: ServerResponse): number {
    const isSame = headers['if-range'] === undefined || headers['if-range'] === this.etag;
    const from = isSame ? firstByte(headers.range) : 0;
    const total = this.file.byteLength;
    const range = { 'content-range': `bytes ${from}-${total - 1}/${total}` };
    response.writeHead(from > 0 ? 206 : 200, {
      'content-length': total - from,
      etag: this.etag,
      ...(from > 0 && range),
    });
    return from;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** An answer without a body. */
export function status(code: number, headers: Readonly<Record<string, string>> = {}): FileAnswer {
  return (_, response) => response.writeHead(code, headers).end();
}

/** The first byte that a request asks for. */
export function firstByte(range: string | undefined): number {
  return Number(/^bytes=(\d+)-$/.exec(range ?? '')?.[1] ?? 0);
}
