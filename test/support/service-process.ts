import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { until } from './broker.js';

/** A real service in a process of its own, which is killed with its scope. */
export class ServiceProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  /** Its log, line by line. */
  readonly log: Record<string, unknown>[] = [];
  /** What it wrote for the user. */
  errors = '';

  /** @param service its folder, as in `learner/local-backend`. */
  constructor(service: string, flags: readonly string[], environment: NodeJS.ProcessEnv = {}) {
    const entry = new URL(`../../${service}/main.js`, import.meta.url).href;
    const script = `import(${JSON.stringify(entry)}).then(({ main }) => main(process.argv.slice(1), process.env))`;
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

  get hasEnded(): boolean {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
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

  /** The first line of its log that holds, once there is one. */
  async says(holds: (line: Record<string, unknown>) => boolean): Promise<Record<string, unknown>> {
    await until(() => this.log.some(holds) || this.hasEnded);
    const line = this.log.find(holds);
    if (line === undefined) throw new Error(`it has ended: ${this.errors}${this.tail}`);
    return line;
  }

  /** The end of its log, for a message. */
  get tail(): string {
    return this.log
      .slice(-5)
      .map((line) => JSON.stringify(line))
      .join('\n');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop('SIGKILL');
  }
}
