import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { dirname, join } from 'node:path';
import { freePort } from '../../cli/processes/free-port.js';
import { runCommand } from '../../cli/run-command.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { embeddedModelPath } from '../../shared/model/model-directory.js';
import { startBackendProcess } from './backend-process.js';
import { ensurePackages, pathOf } from './packages.js';
import { atLeast, runPython, type SuiteContext } from './suite.js';

/** The two commands of docs/backends.md. */
const serve =
  'npx offbeat local-backend --api-key tml-local --model-dir "$PWD/shared/model/base" --model-name "$PWD/shared/model/base"';
const train =
  'TINKER_BASE_URL=http://127.0.0.1:10610 TINKER_API_KEY=tml-local python tools/cookbook/countdown.py';
const defaultPort = '10610';

/** Runs the two commands as the page has them, but for the port, until the model solves problems that it did not. */
export async function testTwoCommands(context: SuiteContext): Promise<void> {
  const { python, folder, signal, report, note } = context;
  const port = String(await freePort());
  const server = spawn('bash', ['-c', `exec ${serve}`], {
    cwd: packageRoot,
    env: {
      ...process.env,
      LOCAL_BACKEND_PORT: port,
      LOCAL_BACKEND_CHECKPOINT_DIR: join(folder, 'checkpoints'),
    },
    stdio: 'ignore',
  });
  const ended = once(server, 'exit');
  try {
    // The environment's Python; the client itself waits for the server.
    const shell = 'export PATH="$0:$PATH"; ' + train.replace(defaultPort, port);
    const { code, output } = await runCommand('bash', ['-c', shell, dirname(python)], {
      cwd: packageRoot,
      timeoutMs: 1_140_000,
      signal,
    });
    note(output);
    const steps = output.match(/^step /gm)?.length ?? 0;
    report({ check: 'steps', value: steps, bound: '20', passed: code === 0 && steps === 20 });
    const [before = NaN, after = NaN] = [...output.matchAll(/solved (?:before|after): (.+)%/g)].map(
      ([, share]) => Number(share),
    );
    const gain = Number((after - before).toFixed(1));
    report(atLeast('held-out problems solved, after less before, in %', gain, 5));
  } finally {
    server.kill('SIGTERM');
    await ended;
  }
}

/**
 * The cookbook's RL loop, in asynchronous mode, trains the embedded model.
 *
 * @param packages a folder with another cookbook and SDK than those of the environment (ensurePackages).
 */
export async function testCookbook(context: SuiteContext, packages?: string): Promise<void> {
  await using backend = await startBackendProcess(context, embeddedModelPath);
  const args = [context.isShort ? '4' : '12'];
  await runPython(context, 'cookbook/main.py', args, { ...backend.env, ...pathOf(packages) });
}

/** The newest cookbook needs SDK 0.38; what else it imports, the environment has. */
export async function testNewestCookbook(context: SuiteContext): Promise<void> {
  const newest = ['tinker==0.38.0', 'tinker-cookbook==0.6.1'];
  await testCookbook(context, await ensurePackages(context, newest));
}
