import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort } from '../../cli/processes/free-port.js';

export interface NatsServerOptions {
  /** The largest message that it accepts, in bytes; its default is 1 MiB. */
  readonly maxPayload?: number;
  readonly jetStream?: boolean;
  /** The disk space of all streams together, in bytes; unlimited by default. */
  readonly maxFileStore?: number;
  /** Further lines of its configuration. */
  readonly configuration?: string;
}

/** A real nats-server for one test, on a free loopback port, with its files in a temporary folder. */
export class NatsServer implements AsyncDisposable {
  readonly port: number;
  readonly #folder: string;
  #lines: readonly string[] = [];
  #child: ChildProcess | undefined;

  private constructor(port: number, folder: string) {
    this.port = port;
    this.#folder = folder;
  }

  /** Starts the binary `OFFBEAT_NATS_SERVER`, otherwise `nats-server` on the path. */
  static async start(options: NatsServerOptions = {}): Promise<NatsServer> {
    const { maxPayload, jetStream = true, maxFileStore, configuration = '' } = options;
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-nats-'));
    const server = new NatsServer(await freePort(), folder);
    const limit = maxFileStore === undefined ? '' : `, max_file_store: ${maxFileStore}`;
    server.#lines = [
      `listen: "127.0.0.1:${server.port}"`,
      jetStream ? `jetstream { store_dir: "${server.storeFolder}"${limit} }` : '',
      maxPayload === undefined ? '' : `max_payload: ${maxPayload}`,
    ];
    await server.configure(configuration);
    try {
      await server.resume();
    } catch (caught) {
      await server[Symbol.asyncDispose]();
      throw caught;
    }
    return server;
  }

  /** Replaces the further lines of its configuration, which it reads when it is started again. */
  async configure(configuration: string): Promise<void> {
    await writeFile(join(this.#folder, 'nats.conf'), [...this.#lines, configuration].join('\n'));
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  /** Of its process; only while it runs. */
  get pid(): number {
    return this.#child!.pid!;
  }

  /** Ends the process and keeps its files. */
  async stop(how: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child?.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(how);
    await exited;
  }

  /** Starts it again on the same port and files; resolves when it is ready. */
  async resume(): Promise<void> {
    const binary = process.env['OFFBEAT_NATS_SERVER'] ?? 'nats-server';
    const child = spawn(binary, ['-c', join(this.#folder, 'nats.conf')], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.#child = child;
    const output: string[] = [];
    await new Promise<void>((resolve, reject) => {
      child.once('error', reject);
      child.once('exit', (code) => {
        reject(new Error(`${binary} ended with ${code}:\n${output.join('')}`));
      });
      child.stderr.on('data', (chunk: Buffer) => {
        output.push(chunk.toString());
        if (output.join('').includes('Server is ready')) resolve();
      });
    });
    output.length = 0;
    child.stderr.removeAllListeners('data').resume();
  }

  /** Pauses or continues the process. */
  hold(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child?.kill(signal);
  }

  /** The folder of its store. */
  get storeFolder(): string {
    return join(this.#folder, 'store');
  }

  /** The folder of a stream. */
  streamFolder(stream: string): string {
    return join(this.storeFolder, 'jetstream', '$G', 'streams', stream);
  }

  /** Deletes its files, as a container without a volume does; only while it is stopped. */
  async forget(): Promise<void> {
    await rm(this.storeFolder, { recursive: true, force: true });
  }

  async restart(how: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    await this.stop(how);
    await this.resume();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop('SIGKILL');
    await rm(this.#folder, { recursive: true, force: true });
  }
}
