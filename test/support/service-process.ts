import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { offbeatProgram } from '../../shared/base/package-root.js';
import { parentPipe } from '../../shared/service/parent-pipe.js';
import { until } from './waiting.js';

type LogLine = Record<string, unknown>;

/** The environment of a process that reports its `liveBytes`. */
export const watchesMemory: NodeJS.ProcessEnv = {
  NODE_OPTIONS: `--import=${new URL('./live-memory.js', import.meta.url).href}`,
};

/** A real service in its own process, which is killed at the end of its scope, and ends if this process is killed. */
export class ServiceProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  #hasEnded = false;
  /** Its log, line by line. */
  readonly log: LogLine[] = [];
  /** The bytes that it has logged. */
  logBytes = 0;
  /** Its output for the user. */
  errors = '';

  /**
   * @param service its command, as in `offbeat local-backend`.
   * @param environment in addition to that of this process.
   */
  constructor(service: string, flags: readonly string[], environment: NodeJS.ProcessEnv = {}) {
    const child = spawn(process.execPath, [offbeatProgram, service, ...flags], {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, [parentPipe]: '1', ...environment },
    });
    createInterface(child.stdout).on('line', (line) => {
      this.logBytes += Buffer.byteLength(line) + 1;
      this.log.push(JSON.parse(line) as LogLine);
    });
    child.stderr.on('data', (chunk: Buffer) => (this.errors += chunk.toString()));
    this.#child = child;
    // `close` comes after all output, so its last lines are in the log by then.
    this.#ended = once(child, 'close').then(() => {
      this.#hasEnded = true;
    });
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Its exit code, once it has ended: null when a signal killed it. */
  async exitCode(): Promise<number | null> {
    await this.#ended;
    return this.#child.exitCode;
  }

  /** Pauses or continues the process; SIGUSR2 is for modules that a test preloads. */
  hold(signal: 'SIGSTOP' | 'SIGCONT' | 'SIGUSR2'): void {
    this.#child.kill(signal);
  }

  async stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<number | null> {
    this.#child.kill(signal);
    return this.exitCode();
  }

  /** Waits for the first log line that satisfies the condition. */
  async says(holds: (line: LogLine) => boolean): Promise<LogLine> {
    await until(() => this.log.some(holds) || this.#hasEnded);
    const line = this.log.find(holds);
    if (line === undefined) throw new Error(`it has ended: ${this.errors}${this.tail}`);
    return line;
  }

  /** The answer of its health server, once that listens. */
  async ask(path: '/healthz' | '/readyz' | '/metrics'): Promise<{ status: number; body: string }> {
    const { healthPort } = await this.says((line) => line['healthPort'] !== undefined);
    const response = await fetch(`http://127.0.0.1:${String(healthPort)}${path}`);
    return { status: response.status, body: await response.text() };
  }

  /** The value of one metric, named with all its labels; NaN if it has none yet. */
  async metric(name: string): Promise<number> {
    const { body } = await this.ask('/metrics');
    const line = body.split('\n').find((text) => text.startsWith(`${name} `));
    return Number(line?.slice(name.length) ?? NaN);
  }

  /** Its live bytes after a garbage collection; requires the environment `watchesMemory`. */
  async liveBytes(): Promise<number> {
    const reports = () => this.log.filter(({ msg }) => msg === 'live memory');
    const before = reports().length;
    this.hold('SIGUSR2');
    await until(() => reports().length > before || this.#hasEnded);
    return Number(reports().at(before)?.['bytes']);
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
