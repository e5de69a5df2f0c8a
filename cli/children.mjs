import { spawn } from 'node:child_process';
import { constants } from 'node:os';

const killAfterMs = 10_000;

/**
 * Runs a command to its end, in its own process group: signals that end us are forwarded to the whole
 * group, and processes that the command leaves running are killed.
 *
 * @param {{ cwd: string, env?: NodeJS.ProcessEnv, isQuiet?: boolean }} options isQuiet collects the
 *   output for the caller instead of showing it.
 * @returns {Promise<{ code: number, output: string }>} 128 + n when signal n ended it, as a shell says.
 */
export function runChild(command, args, { cwd, env = process.env, isQuiet = false }) {
  return new Promise((resolve) => {
    const stdio = isQuiet ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'inherit', 'inherit'];
    const child = spawn(command, args, { cwd, env, stdio, detached: true });
    const chunks = [];
    child.stdout?.on('data', (chunk) => chunks.push(chunk));
    child.stderr?.on('data', (chunk) => chunks.push(chunk));

    let patience;
    const passOn = (signal) => {
      killGroup(child.pid, signal);
      patience ??= setTimeout(() => killGroup(child.pid, 'SIGKILL'), killAfterMs);
    };
    const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
    for (const signal of signals) process.on(signal, passOn);

    const end = (code, more = '') => {
      clearTimeout(patience);
      for (const signal of signals) process.off(signal, passOn);
      resolve({ code, output: Buffer.concat(chunks).toString() + more });
    };
    child.on('error', (error) => end(127, `${command}: ${error.message}\n`));
    // Remaining processes may hold the output open, so that `close` never comes: end them first.
    child.on('exit', () => killGroup(child.pid, 'SIGKILL'));
    child.on('close', (code, signal) => end(code ?? 128 + constants.signals[signal]));
  });
}

/**
 * Under npm, ends this process as SIGTERM would when npm is gone: npm may be killed before it can
 * forward a signal, and then nothing would stop us. npm may be gone already: it ends at once if it
 * cannot write its first line, so the script names npm's process in OFFBEAT_NPM.
 */
export function endWithLauncher() {
  const { npm_lifecycle_event: script, OFFBEAT_NPM: npm } = process.env;
  delete process.env.OFFBEAT_NPM; // our own processes have another parent
  if (script === undefined) return;
  const launcher = Number(npm) || process.ppid;
  if (process.ppid !== launcher) {
    process.stderr.write(
      'npm has ended, so this command ends too; can npm write to its standard output?\n',
    );
    process.kill(process.pid, 'SIGTERM');
  }
  const timer = setInterval(() => {
    if (process.ppid === launcher) return;
    clearInterval(timer);
    process.kill(process.pid, 'SIGTERM');
  }, 500);
  timer.unref();
}

function killGroup(pid, signal) {
  if (pid === undefined) return;
  try {
    process.kill(-pid, signal);
  } catch {
    // The whole group is gone already.
  }
}
