import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { runCommand, type CommandResult } from '../../deploy/local/run-command.js';
import { packageRoot } from '../../shared/package-root.js';
import { offbeatCli } from '../support/offbeat.js';

/** So that it takes seconds; a flag of the command itself comes before these. */
const small = {
  OFFBEAT_MAX_STEPS: '2',
  OFFBEAT_ACTORS: '1',
  OFFBEAT_GROUPS_PER_BATCH: '4',
  OFFBEAT_GROUP_SIZE: '8',
  OFFBEAT_NUM_MINIBATCHES: '1',
  OFFBEAT_LORA_RANK: '2',
  OFFBEAT_CHECKPOINT_EVERY_STEPS: '1',
  OFFBEAT_EVAL_PROBLEMS: '4',
  OFFBEAT_EVAL_SAMPLES: '1',
};

/**
 * A shell in a folder that looks like a checkout, but for `runs`, which are its own. `npx offbeat`
 * and `npm start` are what was compiled from this checkout.
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
    const offbeat = `exec "${process.execPath}" "${offbeatCli}"`;
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

  /** Runs a command to its end; where it says for how many steps, for fewer. */
  async run(command: string): Promise<CommandResult> {
    const shorter = command.replace(/--max-steps[ =]\d+/, '--max-steps 4');
    const path = `PATH='${join(this.folder, '.bin')}'${delimiter}"$PATH"`;
    const variables = Object.entries(small).map(([name, value]) => `${name}=${value}`);
    const script = `export ${path} ${variables.join(' ')}; ${shorter}`;
    return runCommand('bash', ['-euo', 'pipefail', '-c', script], {
      cwd: this.folder,
      timeoutMs: 240_000,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
