import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { offbeatProgram } from '../../../shared/base/package-root.js';
import { isRunning } from '../../support/processes.js';
import { until } from '../../support/waiting.js';
import { executable } from '../../cli/nats-server/fakes.js';

// With --help, so that no environment is made: the launcher's own work, test:compat shows.
describe('offbeat tuft-cpu', { timeout: 240_000 }, () => {
  let root: string;
  beforeEach(async () => (root = await mkdtemp(join(tmpdir(), 'offbeat-tuft-cpu-'))));
  afterEach(() => rm(root, { recursive: true }));

  /** With a Python that runs `body`, a shell text, where it should run the launcher. */
  async function start(body: string, ...flags: string[]): Promise<ChildProcess> {
    const python = await executable(
      join(root, 'python3'),
      `#!/bin/sh\ncase "$1" in -c) echo "python 3 11";; *) ${body};; esac\n`,
    );
    return spawn(process.execPath, [offbeatProgram, 'tuft-cpu', '--help', ...flags], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, OFFBEAT_PYTHON: python },
    });
  }

  it('offbeat tuft-cpu passes its flags to the launcher and has its exit code', async () => {
    const child = await start('echo "$@"; exit 3', '--seed', '7');
    const closed = once(child, 'close') as Promise<[number]>;
    assert.match(await text(child.stdout!), /tools\/tuft-cpu\/tuft_cpu\.py --help --seed 7\n$/);
    assert.equal((await closed)[0], 3);
  });

  it('offbeat tuft-cpu forwards the signal that ends it and waits for the end', async () => {
    const child = await start(
      'trap "echo saved; exit 0" TERM; echo up; while :; do sleep 0.1; done',
    );
    let out = '';
    child.stdout!.on('data', (chunk: Buffer) => (out += chunk.toString()));
    await until(() => out === 'up\n');
    child.kill('SIGTERM');
    assert.deepEqual(await once(child, 'close'), [0, null]);
    assert.equal(out, 'up\nsaved\n');
  });

  it('offbeat tuft-cpu leaves no server running if it is killed itself', async () => {
    const child = await start('echo $$; exec sleep 60');
    const [pid] = (await once(child.stdout!, 'data')) as [Buffer];
    child.kill('SIGKILL');
    await until(() => !isRunning(Number(pid)));
  });

  it('offbeat tuft-cpu names what is missing if there is no Python', async () => {
    const child = spawn(process.execPath, [offbeatProgram, 'tuft-cpu', '--help'], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, OFFBEAT_PYTHON: join(root, 'none') },
    });
    const closed = once(child, 'close') as Promise<[number]>;
    assert.match(await text(child.stderr), /OFFBEAT_PYTHON cannot be used/);
    assert.equal((await closed)[0], 2);
  });
});
