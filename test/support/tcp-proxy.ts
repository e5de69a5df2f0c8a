import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { gate } from './broker.js';

/** Hears what a client sends, in order; one of these a connection. @returns what is passed on. */
export type Tap = (bytes: Buffer) => Buffer;

/**
 * A network between clients and a server on loopback: it passes bytes on, and can hold them
 * up, cut every connection, or be down for a while.
 */
export class TcpProxy implements AsyncDisposable {
  /** Each piece of data waits so long, at random up to this many ms; order within a connection stays. */
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

  /** How many connections there are. */
  get size(): number {
    return this.#sockets.size / 2;
  }

  /** Breaks every connection, as a network does: whatever was on its way is lost. */
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

  /** Keeps what clients send from now on, and delivers all of it in order on `release`. */
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
