import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { gate } from './waiting.js';

/** Receives the bytes of a client in order; one per connection. @returns the bytes to pass on. */
export type Tap = (bytes: Buffer) => Buffer;

/**
 * A simulated network between clients and a server on loopback: it passes bytes on, and can hold them
 * back, cut every connection, or be down for a while.
 */
export class TcpProxy implements AsyncDisposable {
  /** Each piece of data is delayed at random by up to this many ms; order within a connection stays. */
  delayMs = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #isDown = false;
  #held: ReturnType<typeof gate> | undefined;

  static async before(port: number, tap: () => Tap = () => unchanged): Promise<TcpProxy> {
    const proxy = new TcpProxy(port, tap);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  private constructor(port: number, tap: () => Tap) {
    this.#server = createServer((client) => {
      if (this.#isDown) return void client.destroy();
      const server = connect(port, '127.0.0.1');
      this.#pass(client, server, tap(), () => this.#held?.opened);
      this.#pass(server, client, unchanged);
    });
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The number of connections. */
  get size(): number {
    return this.#sockets.size / 2;
  }

  /** Breaks every connection like a network failure: data in transit is lost. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Breaks every connection, and refuses new ones until `up`. */
  down(): void {
    this.#isDown = true;
    this.cut();
  }

  up(): void {
    this.#isDown = false;
  }

  /** Holds back all client data from now on, and delivers it in order on `release`. */
  hold(): void {
    this.#held ??= gate();
  }

  release(): void {
    this.#held?.open();
    this.#held = undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.release();
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #pass(
    from: Socket,
    to: Socket,
    tap: Tap,
    held: () => Promise<void> | undefined = () => undefined,
  ): void {
    this.#sockets.add(from);
    from.setNoDelay(true);
    let last = Promise.resolve();
    from.on('data', (bytes: Buffer) => {
      const passedOn = tap(bytes);
      if (passedOn.length === 0) return;
      const delayMs = this.delayMs * Math.random();
      last = last.then(async () => {
        await held();
        if (delayMs > 0) await sleep(delayMs, undefined, { ref: false });
        if (!to.destroyed) to.write(passedOn);
      });
    });
    from.on('error', () => undefined); // `close` follows
    from.on('close', () => {
      this.#sockets.delete(from);
      void last.then(() => to.destroy());
    });
  }
}

function unchanged(bytes: Buffer): Buffer {
  return bytes;
}
