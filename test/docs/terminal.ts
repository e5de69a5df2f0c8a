import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { runCommand, type CommandResult } from '../../cli/run-command.js';
import { offbeatProgram, packageRoot } from '../../shared/base/package-root.js';
import { until } from '../support/waiting.js';

/** Flags that shorten a run to seconds; the command's own flags come before them. */
const small = {
  OFFBEAT_MAX_STEPS: '1',
  OFFBEAT_ACTORS: '1',
  OFFBEAT_GROUPS_PER_BATCH: '2',
  OFFBEAT_GROUP_SIZE: '4',
  OFFBEAT_NUM_MINIBATCHES: '1',
  OFFBEAT_LORA_RANK: '2',
  OFFBEAT_CHECKPOINT_EVERY_STEPS: '1',
  OFFBEAT_EVAL_PROBLEMS: '4',
  OFFBEAT_EVAL_SAMPLES: '1',
  SCORE_SERVER_HTTP_PORT: '0',
};

/** Whether a command starts a run, whose actors are processes. */
const isRun = (command: string) => /\bnpm start\b/.test(command);

/** The address that a server prints, in words or as the port in its log. */
function urlIn(output: string): string | undefined {
  const port = /"httpPort":(\d+)/.exec(output)?.[1];
  return port === undefined
    ? /http:[/][/]\S+/.exec(output)?.[0]
    : `http://127.0.0.1:${port}/openapi.json`;
}

/**
 * A shell in a folder that looks like a checkout but has its own `runs`. `npx offbeat`
 * and `npm start` run the compiled code of this checkout.
 */
export class Terminal implements AsyncDisposable {
  private constructor(readonly folder: string) {}

  static async open(): Promise<Terminal> {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-docs-'));
    for (const name of ['deploy', 'docs', 'shared', 'test', 'package.json']) {
      await symlink(join(packageRoot, name), join(folder, name));
    }
    const bin = join(folder, '.bin');
    await mkdir(bin);
    const offbeat = `exec "${process.execPath}" "${offbeatProgram}"`;
    const programs = {
      npx: `[ "$1" = offbeat ] || exit 127\nshift\n${offbeat} "$@"`,
      npm: [
        `case "$1" in start) command=up; shift;; run) command="$2"; shift 2;; *) exit 127;; esac`,
        `[ "$1" != -- ] || shift`,
        `case "$command" in`,
        `up | sweep) ${offbeat} "$command" "$@";;`,
        `bench) exec "${process.execPath}" "${packageRoot}dist/test/bench/main.js" "$@";;`,
        `*) exit 127;; esac`,
      ].join('\n'),
    };
    for (const [name, script] of Object.entries(programs)) {
      await writeFile(join(bin, name), `#!/bin/sh\n${script}\n`);
      await chmod(join(bin, name), 0o755);
    }
    return new Terminal(folder);
  }

  /**
   * Runs a server command until it answers, then asks it to stop.
   *
   * @throws AssertionError if it ends earlier or not cleanly.
   */
  async serve(command: string): Promise<void> {
    const script = `${this.#settingsFor(command)} exec ${command}`;
    const child = spawn('bash', ['-euo', 'pipefail', '-c', script], {
      cwd: this.folder,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    }
    const ended = once(child, 'close');
    try {
      await until(() => child.exitCode !== null || urlIn(output) !== undefined);
      const url = urlIn(output);
      assert(url !== undefined, `it ended with ${child.exitCode}: ${output}`);
      assert.equal((await fetch(url)).status, 200, url);
      child.kill('SIGTERM');
      await ended;
      assert([0, 143].includes(child.exitCode!), `${child.exitCode}: ${output}`);
    } finally {
      child.kill('SIGKILL');
      await ended;
    }
  }

  /** Runs a command to its end, for fewer steps and with fewer actors than it says. */
  async run(command: string): Promise<CommandResult> {
    const shorter = command.replace(/--max-steps[ =]\d+/, '--max-steps 2');
    // Two are several, too; each of them loads a model.
    const smaller = isRun(command)
      ? shorter.replace(/(--actors[ =]|OFFBEAT_ACTORS=)(?:[3-9]|\d\d+)\b/, '$12')
      : shorter;
    const script = `${this.#settingsFor(command)} ${smaller}`;
    return runCommand('bash', ['-euo', 'pipefail', '-c', script], {
      cwd: this.folder,
      timeoutMs: 240_000,
    });
  }

  /** The beginning of the script of a command: the path of programs, and settings that shorten a run. */
  #settingsFor(command: string): string {
    const path = `PATH='${join(this.folder, '.bin')}'${delimiter}"$PATH"`;
    if (/\bsweep\b/.test(command)) return `export ${path};`; // it refuses variables that are settings of its runs
    // Fewer problems are generated sooner; a file has the number that it has.
    const fewer = { OFFBEAT_TRAIN_SIZE: '512', OFFBEAT_TEST_SIZE: '64' };
    const size = /--(dataset|task)\b/.test(command) ? {} : fewer;
    // The same variable would add an actor to a run.
    const lone = /^npx offbeat eval\b/.test(command) ? { OFFBEAT_EVAL_ACTORS: '1' } : {};
    const variables = Object.entries({ ...small, ...size, ...lone }).map(
      ([name, value]) => `${name}=${value}`,
    );
    return `export ${path} ${variables.join(' ')};`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
