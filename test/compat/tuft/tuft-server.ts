import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../../cli/processes/free-port.js';
import { compatFolder, type SuiteContext } from '../suite.js';

export const apiKey = 'tml-compat-key';

/** A real TuFT server, started by the launcher in tools/tuft-cpu and ended with its scope. */
export class TuftServer implements AsyncDisposable {
  #child: ChildProcess | undefined;
  #output = '';

  private constructor(
    private readonly context: SuiteContext,
    private readonly flags: readonly string[],
    readonly port: number,
    readonly checkpointDir: string,
  ) {}

  /** @param flags of the launcher, in addition to address, checkpoints and one thread. */
  static async start(context: SuiteContext, flags: readonly string[]): Promise<TuftServer> {
    const port = await freePort();
    const checkpointDir = join(context.folder, `tuft-${port}`);
    await mkdir(checkpointDir, { recursive: true });
    const server = new TuftServer(context, flags, port, checkpointDir);
    await server.start();
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Its output so far. */
  get output(): string {
    return this.#output;
  }

  /** Starts it, or restarts it with its files; resolves once it answers. */
  async start(): Promise<void> {
    const args = [
      `${compatFolder}../../tools/tuft-cpu/tuft_cpu.py`,
      ...[`--port=${this.port}`, `--checkpoint-dir=${this.checkpointDir}`, '--threads=1'],
      ...this.flags,
    ];
    const child = spawn(this.context.python, args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, TINKER_API_KEY: apiKey, HF_HUB_OFFLINE: '1' },
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (this.#output += chunk.toString()));
    }
    this.#child = child;
    while (!(await this.#answers())) {
      if (child.exitCode !== null) throw new Error(`TuFT did not start: ${this.#output}`);
      await sleep(100, undefined, { signal: this.context.signal });
    }
  }

  /** One POST below /api/v1/ as JSON, without our client in between. */
  send(path: string, json: unknown): Promise<Response> {
    return fetch(`${this.url}/api/v1/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-api-key': apiKey },
      body: JSON.stringify(json),
    });
  }

  /** The promise of an operation that was accepted. */
  async submit(path: string, json: unknown): Promise<string> {
    const answer = (await (await this.send(path, json)).json()) as { request_id: string };
    return answer.request_id;
  }

  /** The final answer to a promise: status and text. */
  async settle(requestId: string): Promise<{ status: number; text: string }> {
    for (;;) {
      const answer = await this.send('retrieve_future', { request_id: requestId });
      const text = await answer.text();
      if (!text.includes('try_again')) return { status: answer.status, text };
    }
  }

  /** Its exit code, or the signal that ended it. */
  async stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | string | null> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return null;
    const ended = once(child, 'exit') as Promise<[number | null, string | null]>;
    child.kill(signal);
    const [code, by] = await ended;
    return code ?? by;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop('SIGKILL');
  }

  async #answers(): Promise<boolean> {
    const signal = AbortSignal.timeout(2_000);
    return fetch(`${this.url}/api/v1/healthz`, { signal }).then(
      ({ ok }) => ok,
      () => false,
    );
  }
}
