import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:os';
import { UserError } from '../../shared/base/errors.js';
import { packageRoot } from '../../shared/base/package-root.js';
import type { Environment } from '../../shared/service/config.js';
import { ensurePythonEnvironment, findPython } from './environment.js';
import { tieToParent } from '../../cli/processes/managed-process.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

const launcher = `${packageRoot}tools/tuft-cpu/tuft_cpu.py`;
const requirements = [`${packageRoot}tools/tuft-cpu/requirements.txt`];

/** Enough for downloads of 200 MB on a slow line. */
const setupMinutes = 30;

/**
 * Runs the launcher of the real TuFT server with these flags, in a Python environment that is created
 * if needed, until it ends or a signal ends both.
 *
 * @returns its exit code, 128 + n if signal n ended it.
 * @throws {UserError} if there is no Python, or its packages cannot be downloaded.
 */
export async function tuftCpu(flags: readonly string[], env: Environment): Promise<number> {
  if (flags[0]?.startsWith('-') === false) {
    throw new UserError(`offbeat tuft-cpu: ${flags[0]} is not a flag; --help lists the flags`);
  }
  const python = await pythonFor(flags, env);
  const { file, args } = tieToParent({ file: python, args: [launcher, ...flags] });
  const passOn = (signal: NodeJS.Signals) => child.kill(signal === 'SIGHUP' ? 'SIGTERM' : signal);
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  for (const signal of signals) process.on(signal, passOn); // before the start, so that none is missed
  const child = spawn(file, args, { stdio: ['pipe', 'inherit', 'inherit'], env: { ...env } });
  child.stdin.on('error', () => undefined); // it has ended
  try {
    const [code, by] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
    return code ?? 128 + constants.signals[by!];
  } finally {
    for (const signal of signals) process.off(signal, passOn);
  }
}

/** Any Python can print the help. */
async function pythonFor(flags: readonly string[], env: Environment): Promise<string> {
  if (flags.includes('--help') || flags.includes('-h')) {
    const found = await findPython({ env });
    if (typeof found === 'string') throw new UserError(found);
    return found.path;
  }
  return ensurePythonEnvironment({
    requirements,
    env,
    report: printError,
    timeoutMs: setupMinutes * 60_000,
  });
}
