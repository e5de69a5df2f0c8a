import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { UserError } from '../../../shared/base/errors.js';
import { failureOf } from '../../compat/suite.js';
import type { Round, Side } from './comparison.js';

/** The sources of the scripts: Python is not compiled into dist/. */
const scripts = fileURLToPath(new URL('../../../../test/bench/peers/', import.meta.url));

export const scriptPath = (name: string): string => `${scripts}${name}`;

const Round = z.object({
  count: z.number().positive(),
  processor: z.number().positive(),
  wall: z.number().positive(),
  loss: z.number().optional(), // of a training step
  norm: z.number().optional(), // of its gradient
});

const loadMinutes = 20; // onnxruntime-genai builds its model, on a busy machine

/**
 * A script of this folder that has loaded its model. For each line that it reads it does one round and prints a line.
 * OpenMP's threads are limited besides torch's own.
 */
export class PythonPeer implements Side {
  readonly #errors: string[] = [];
  readonly #lines: AsyncIterator<string>;

  private constructor(
    private readonly script: string,
    private readonly child: ChildProcessWithoutNullStreams,
  ) {
    createInterface(child.stderr).on('line', (line) => this.#errors.push(line));
    this.#lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  }

  /**
   * Starts the script and waits for its first round, which does not count.
   *
   * @throws {UserError} with its last line, if it cannot run here.
   */
  static async start(
    python: string,
    script: string,
    args: readonly string[],
    { threads, env = {} }: { threads: number; env?: NodeJS.ProcessEnv },
  ): Promise<PythonPeer> {
    const child = spawn(python, [scriptPath(script), ...args, `--threads=${threads}`], {
      env: {
        ...process.env,
        PYTHONDONTWRITEBYTECODE: '1',
        HF_HUB_OFFLINE: '1',
        OMP_NUM_THREADS: String(threads),
        OMP_WAIT_POLICY: 'passive', // as ours: threads that spin would be counted as work
        ...env,
      },
      stdio: 'pipe',
    });
    child.on('error', () => undefined); // its exit is noticed
    child.stdin.on('error', () => undefined);
    const peer = new PythonPeer(script, child);
    const late = setTimeout(() => child.kill(), loadMinutes * 60_000);
    try {
      await peer.#line();
    } finally {
      clearTimeout(late);
    }
    return peer;
  }

  async answer(): Promise<unknown> {
    this.child.stdin.write('round\n');
    return JSON.parse(await this.#line());
  }

  async round(): Promise<z.infer<typeof Round>> {
    return Round.parse(await this.answer());
  }

  async #line(): Promise<string> {
    const { value, done } = (await this.#lines.next()) as IteratorResult<string, undefined>;
    if (done !== true) return value;
    if (this.child.exitCode === null && this.child.signalCode === null)
      await once(this.child, 'close');
    const [last] = failureOf(this.#errors).split('\n');
    throw new UserError(`${this.script}: ${last!}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    this.child.stdin.end();
    const killed = setTimeout(() => this.child.kill('SIGKILL'), 10_000);
    await once(this.child, 'close');
    clearTimeout(killed);
  }
}
