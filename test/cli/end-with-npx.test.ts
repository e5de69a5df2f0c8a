import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after, afterEach, before, describe, it } from 'node:test';
import { offbeatProgram } from '../../shared/base/package-root.js';
import { isRunning } from '../support/processes.js';
import { tinyModel } from '../support/tiny-model.js';
import { until } from '../support/waiting.js';

/** The variables with which npm 7 to 11 run the script of `npx offbeat`. */
const npx = {
  npm_command: 'exec',
  npm_lifecycle_event: 'npx',
  npm_lifecycle_script: "'offbeat'",
};
/** Advances the intervals of the process by ten seconds at SIGUSR2 and reports it. */
const fakeClock = `data:text/javascript,${encodeURIComponent(`
  import { mock } from 'node:test';
  mock.timers.enable({ apis: ['setInterval'] });
  process.on('SIGUSR2', () => {
    mock.timers.tick(10_000);
    process.stdout.write(JSON.stringify({ msg: 'ticked' }) + '\\n');
  });`)}`;

describe('a server and its launcher', { timeout: 120_000 }, () => {
  let model: Awaited<ReturnType<typeof tinyModel>>;

  before(async () => {
    model = await tinyModel();
  });
  after(() => model[Symbol.asyncDispose]());
  const pids = new Set<number>();
  afterEach(() => {
    for (const pid of pids) if (isRunning(pid)) process.kill(pid, 'SIGKILL'); // of a test that failed
    pids.clear();
  });

  /** A server that `sh -c` starts by `command`, as npm's and a user's shell do. */
  function launch(command: string, env: NodeJS.ProcessEnv) {
    const launcher = spawn(
      'sh',
      ['-c', command, process.execPath, offbeatProgram, 'local-backend'],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
        env: {
          ...process.env,
          LOCAL_BACKEND_API_KEY: 'tml-launched',
          LOCAL_BACKEND_PORT: '0',
          LOCAL_BACKEND_MODEL_DIR: model.path,
          LOCAL_BACKEND_CHECKPOINT_DIR: model.path,
          ...env,
        },
      },
    );
    const log: Record<string, unknown>[] = [];
    createInterface(launcher.stdout).on('line', (line) => {
      const entry = JSON.parse(line) as Record<string, unknown>;
      log.push(entry);
      if (typeof entry['pid'] === 'number') pids.add(entry['pid']);
    });
    const says = async (msg: string) => {
      await until(() => log.some((line) => line['msg'] === msg));
      return log.find((line) => line['msg'] === msg)!;
    };
    return { launcher, log, says, ended: once(launcher.stdout, 'close') };
  }

  it('a server that npx started finishes when npx is gone', async () => {
    const { launcher, says, ended } = launch('"$0" "$@"; exit', npx);
    const { pid } = await says('ready');
    launcher.kill('SIGTERM'); // npm forwards the signal to this shell
    await ended; // its last holder, the server, lets go of it as it ends
    assert.equal((await says('shutting down'))['signal'], 'SIGTERM');
    await until(() => !isRunning(Number(pid)));
  });

  const elsewhere = {
    'without npx': {},
    'in a shell that npx started': { ...npx, npm_lifecycle_script: '/bin/sh' },
  };
  for (const [place, env] of Object.entries(elsewhere)) {
    it(`a server put in the background ${place} outlives its launcher`, async () => {
      const { launcher, log, says, ended } = launch('nohup "$0" "$@" & wait', {
        ...env,
        NODE_OPTIONS: `--import=${fakeClock}`,
      });
      const { pid, url } = await says('listening');
      launcher.kill('SIGTERM');
      await once(launcher, 'exit');
      process.kill(Number(pid), 'SIGUSR2');
      await says('ticked');
      assert.equal((await fetch(`${String(url)}/api/v1/healthz`)).status, 200);
      assert(!log.some(({ msg }) => msg === 'shutting down'));
      process.kill(Number(pid), 'SIGTERM');
      await ended;
    });
  }
});
