import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { until } from './broker.js';

const entry = new URL('../../actor/main.js', import.meta.url).href;
const script = `import(${JSON.stringify(entry)}).then(({ main }) => main(process.argv.slice(1), process.env))`;

/** A real actor in a process of its own, which is killed with its scope. */
export class ActorProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  /** Its log, line by line. */
  readonly log: Record<string, unknown>[] = [];
  /** What it wrote for the user. */
  errors = '';

  /** @param environment beyond this process's own. */
  constructor(flags: readonly string[], environment: Record<string, string> = {}) {
    this.#child = spawn(process.execPath, ['-e', script, '--', ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...environment },
    });
    createInterface(this.#child.stdout!).on('line', (line) => {
      this.log.push(JSON.parse(line) as Record<string, unknown>);
    });
    this.#child.stderr!.on('data', (chunk: Buffer) => (this.errors += chunk.toString()));
    this.#ended = once(this.#child, 'close');
  }

  /** Its exit code, once it has ended: null when a signal killed it. */
  async exitCode(): Promise<number | null> {
    await this.#ended;
    return this.#child.exitCode;
  }

  async stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null> {
    this.#child.kill(signal);
    return this.exitCode();
  }

  /** The answer of its health server, once that listens. */
  async ask(path: '/readyz' | '/metrics'): Promise<{ status: number; body: string }> {
    await until(() => this.#port !== undefined || this.#child.exitCode !== null);
    if (this.#port === undefined) throw new Error(`the actor has ended: ${this.errors}`);
    const response = await fetch(`http://127.0.0.1:${this.#port}${path}`);
    return { status: response.status, body: await response.text() };
  }

  /** The value of one metric: the line that starts with this name and these labels. */
  async metric(name: string): Promise<number> {
    const { body } = await this.ask('/metrics');
    const line = body.split('\n').find((text) => text.startsWith(`${name} `));
    return Number(line?.split(' ')[1] ?? NaN);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop('SIGKILL');
  }

  get #port(): number | undefined {
    const started = this.log.find(({ msg }) => msg === 'started');
    return started?.['healthPort'] as number | undefined;
  }
}
