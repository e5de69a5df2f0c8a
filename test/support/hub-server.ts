import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sha256 } from '../../shared/base/bytes.js';

export type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** The only repository of each server, and its only commit. */
export const repository = 'Jiayi-Pan/Countdown-Tasks-3to4';
export const commit = 'c'.repeat(40);

/** Serves files like the Hugging Face hub, and misbehaves as a test specifies. */
export class HubServer implements AsyncDisposable {
  readonly #server: Server;
  /** Every request: `GET /path`, with its range. */
  readonly asked: string[] = [];
  /** The faulty answers to the next requests for a file, in order. */
  mishaps: Answer[] = [];
  /** The token of each request. */
  readonly tokens: (string | undefined)[] = [];

  /** What the repository's owner wrote about it. */
  card: object | undefined;

  private constructor(
    readonly files: Map<string, Buffer>,
    readonly kind: 'datasets' | 'models',
  ) {
    this.#server = createServer((request, response) => {
      this.asked.push([request.url, request.headers.range].filter(Boolean).join(' '));
      this.tokens.push(request.headers.authorization);
      this.#answer(request, response);
    });
  }

  static async start(
    files: Readonly<Record<string, Buffer>>,
    kind: HubServer['kind'] = 'datasets',
  ): Promise<HubServer> {
    const hub = new HubServer(new Map(Object.entries(files)), kind);
    hub.#server.listen(0, '127.0.0.1');
    await once(hub.#server, 'listening');
    return hub;
  }

  /** Models are at the root of the hub. */
  get #place(): string {
    return this.kind === 'models' ? `/${repository}` : `/${this.kind}/${repository}`;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** The hub's file list; it treats files that end in .parquet or .safetensors as large. */
  listing(): object {
    const siblings = [...this.files].map(([rfilename, bytes]) => ({
      rfilename,
      size: bytes.byteLength,
      blobId: createHash('sha1').update(`blob ${bytes.byteLength}\0`).update(bytes).digest('hex'),
      ...(/\.(parquet|safetensors)$/.test(rfilename) && {
        lfs: { sha256: sha256(bytes), size: bytes.byteLength, pointerSize: 132 },
      }),
    }));
    return { id: repository, sha: commit, private: false, cardData: this.card, siblings };
  }

  /** Sends a file or the requested range of it. */
  send(bytes: Buffer, request: IncomingMessage, response: ServerResponse): void {
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
    if (request.headers.range === undefined) response.writeHead(200);
    else if (from >= bytes.byteLength) response.writeHead(416);
    else {
      const last = bytes.byteLength - 1;
      response.writeHead(206, { 'content-range': `bytes ${from}-${last}/${bytes.byteLength}` });
    }
    response.end(bytes.subarray(from));
  }

  fileAt(url = ''): Buffer | undefined {
    return this.files.get(url.replace(`${this.#place}/resolve/${commit}/`, ''));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const mishap = this.mishaps.shift();
    if (mishap !== undefined) {
      mishap(request, response);
      return;
    }
    const file = this.fileAt(request.url);
    if (file !== undefined) this.send(file, request, response);
    else if (request.url?.startsWith(`/api/${this.kind}/${repository}/revision/`) === true) {
      response.end(JSON.stringify(this.listing()));
    } else response.writeHead(404).end('not found');
  }
}
