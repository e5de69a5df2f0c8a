import { runCommand } from '../../cli/run-command.js';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import type { Environment } from '../../shared/service/config.js';

/** A Python that ran, can make virtual environments, and told its version. */
export interface PythonInterpreter {
  readonly path: string;
  readonly version: string; // 3.11
}

/** What TuFT and the Tinker SDK need. */
const oldestMinor = 11;

const names = ['python3', 'python3.13', 'python3.12', 'python3.11'];

const probe = `import sys, venv, ensurepip; print("python", *sys.version_info[:2])`;

export interface FindPythonOptions {
  readonly env: Environment;
  readonly folders?: readonly string[];
}

/**
 * The Python named by OFFBEAT_PYTHON, else the first usable one on PATH.
 *
 * @returns sentences saying why not, when there is none.
 */
export async function findPython({
  env,
  folders = searchFolders(env['PATH']),
}: FindPythonOptions): Promise<PythonInterpreter | string> {
  const named = env['OFFBEAT_PYTHON'];
  if (named !== undefined && named !== '') {
    const found = await probePython(named);
    return typeof found === 'string' ? `OFFBEAT_PYTHON cannot be used: ${found}` : found;
  }
  const failures: string[] = [];
  for (const name of names) {
    for (const path of await findExecutables(name, folders)) {
      const found = await probePython(path);
      if (typeof found !== 'string') return found;
      failures.push(found);
    }
  }
  if (failures.length === 0) failures.push('no python3 on PATH');
  return `${failures.join('; ')}. Install Python 3.${oldestMinor} or newer with its venv module, or set OFFBEAT_PYTHON to one`;
}

async function probePython(path: string): Promise<PythonInterpreter | string> {
  const { code, output } = await runCommand(path, ['-c', probe], { timeoutMs: 20_000 });
  const [, major, minor] = /^python (\d+) (\d+)$/m.exec(output) ?? [];
  if (code !== 0 || minor === undefined) {
    return `${path} cannot make virtual environments: ${JSON.stringify(output.slice(-200))}`;
  }
  if (Number(major) !== 3 || Number(minor) < oldestMinor) {
    return `${path} is Python ${major}.${minor}; 3.${oldestMinor} or newer is needed`;
  }
  return { path, version: `${major}.${minor}` };
}
