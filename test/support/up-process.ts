import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { offbeatProgram } from '../../shared/base/package-root.js';
import { parentPipe } from '../../shared/service/parent-pipe.js';
import { processesWith } from './processes.js';

/** A real `offbeat up` in its own folder, and the processes that it started. */
export class UpProcess implements AsyncDisposable {
  out = '';
  err = '';
  readonly #closed: Promise<[number | null, string | null]>;

  private constructor(
    readonly folder: string,
    readonly run: string,
    readonly child: ChildProcess,
  ) {
    child.stdout?.on('data', (chunk: Buffer) => (this.out += chunk.toString()));
    child.stderr?.on('data', (chunk: Buffer) => (this.err += chunk.toString()));
    this.#closed = once(child, 'close') as Promise<[number | null, string | null]>;
  }

  /**
   * @param place of another one, to use its folder and run name.
   * @param env variables in addition to those of this process.
   * @param command that starts the run.
   */
  static async start(
    flags: readonly string[],
    place?: { readonly folder: string; readonly run: string },
    env: Readonly<Record<string, string>> = {},
    command: 'up' | 'sft' = 'up',
  ): Promise<UpProcess> {
    const folder = place?.folder ?? (await mkdtemp(join(tmpdir(), 'offbeat-up-')));
    const run = place?.run ?? folder.replace(/.*offbeat-up-/, 'up-');
    const child = spawn(process.execPath, [offbeatProgram, command, `--run=${run}`, ...flags], {
      cwd: folder,
      // Each of its processes draws the problems; as many as an evaluation has by default.
      env: { ...process.env, [parentPipe]: '1', OFFBEAT_TEST_SIZE: '256', ...env },
      stdio: ['pipe', 'pipe', 'pipe'],
    });
    return new UpProcess(folder, run, child);
  }

  /** Its exit code, or the signal that killed it, once it has ended. */
  async ended(): Promise<number | string | null> {
    const [code, signal] = await this.#closed;
    return code ?? signal;
  }

  /** Waits until its output matches `pattern`. */
  says(pattern: RegExp): Promise<void> {
    return this.#until(() => pattern.test(this.out + this.err), `said ${String(pattern)}`);
  }

  /** Waits for two more steps than it has printed. */
  async trainsOn(): Promise<void> {
    const newest = (): number =>
      Math.max(0, ...[...(this.out + this.err).matchAll(/step (\d+)/g)].map(([, n]) => Number(n)));
    const goal = newest() + 2;
    await this.#until(() => newest() >= goal, `made step ${goal}`);
  }

  /** Rejects with all of its output if it ends before, or after three minutes. */
  async #until(condition: () => boolean, what: string): Promise<void> {
    const deadline = performance.now() + 180_000;
    while (!condition()) {
      const hasEnded = this.child.exitCode !== null;
      if (hasEnded || performance.now() > deadline) {
        const end = hasEnded ? 'ended before it' : 'has not, in three minutes,';
        throw new Error(`it ${end} ${what}:\n${this.out}\n${this.err}`);
      }
      await sleep(50);
    }
  }

  /** The processes of the run that are alive, without the launcher. */
  processes(): number[] {
    const known = new Set([this.child.pid]);
    return processesWith(this.folder, `--run=${this.run} `).filter((pid) => !known.has(pid));
  }

  /** The oldest of the run's processes whose command line has all these words. */
  pidOf(...words: readonly string[]): number {
    const matches = words.map((word) => new Set(processesWith(word)));
    const found = this.processes().find((pid) => matches.every((pids) => pids.has(pid)));
    if (found === undefined) throw new Error(`no process has ${words.join(' and ')}`);
    return found;
  }

  /** Kills every process of the run that is still there. */
  killAll(): void {
    for (const pid of this.processes()) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch (error) {
        // A service that sees its launcher die may have ended since it was listed.
        if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
      }
    }
  }

  path(name: string): string {
    return join(this.folder, 'runs', this.run, name);
  }

  async read(name: string): Promise<string> {
    return await readFile(this.path(name), 'utf8');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.child.kill('SIGKILL');
    this.killAll();
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
