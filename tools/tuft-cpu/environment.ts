import { createHash, randomUUID } from 'node:crypto';
import { access, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { lastLine, runCommand } from '../../cli/run-command.js';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import { UserError } from '../../shared/base/errors.js';
import type { Environment } from '../../shared/service/config.js';
import { cacheFolder } from '../../shared/base/package-root.js';

/** A Python that runs and can create virtual environments, with its version. */
interface PythonInterpreter {
  readonly path: string;
  readonly version: string; // 3.11
}

/** What TuFT and the Tinker SDK need. */
const oldestMinor = 11;

const names = ['python3', 'python3.13', 'python3.12', 'python3.11'];

const probe = `import sys, venv, ensurepip; print("python", *sys.version_info[:2])`;

interface FindPythonOptions {
  readonly env: Environment;
  readonly folders?: readonly string[];
}

/**
 * The Python named by OFFBEAT_PYTHON, else the first usable one on PATH.
 *
 * @returns sentences saying why, if there is none.
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
    return `${path} cannot create virtual environments: ${JSON.stringify(output.slice(-200))}`;
  }
  if (Number(major) !== 3 || Number(minor) < oldestMinor) {
    return `${path} is Python ${major}.${minor}; 3.${oldestMinor} or newer is needed`;
  }
  return { path, version: `${major}.${minor}` };
}

/** The index with the CPU builds of torch; PyPI has only those for CUDA. */
const torchIndex = 'https://download.pytorch.org/whl/cpu';

export interface PythonEnvironmentOptions extends FindPythonOptions {
  /** Requirement files that pin every package: dependencies are not resolved. */
  readonly requirements: readonly string[];
  /** Called before each step that takes time. */
  readonly report: (line: string) => void;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal;
  readonly cache?: string;
}

/**
 * The Python of a virtual environment with exactly the packages of the files. Environments are in the
 * project's cache under a digest of those files, so a changed pin creates a new one.
 *
 * @throws {UserError} if it cannot be created: no Python, or a package that cannot be downloaded.
 */
export async function ensurePythonEnvironment(options: PythonEnvironmentOptions): Promise<string> {
  const { requirements, report, timeoutMs, signal, cache = join(cacheFolder, 'python') } = options;
  const interpreter = await findPython(options);
  if (typeof interpreter === 'string') throw new UserError(interpreter);

  const home = join(cache, await digest(interpreter.version, requirements));
  await createFolderOnce(home, async (draft) => {
    report(`creating a Python environment in ${home} (a download of about 200 MB)`);
    const deadline = Date.now() + timeoutMs;
    const run = (command: string, args: readonly string[]) =>
      runCommand(command, args, {
        timeoutMs: Math.max(1, deadline - Date.now()),
        ...(signal !== undefined && { signal }),
      });

    const made = await run(interpreter.path, ['-m', 'venv', draft]);
    if (made.code !== 0)
      throw new UserError(`${interpreter.path} -m venv: ${lastLine(made.output)}`);

    const pip = ['-m', 'pip', 'install', '--quiet', '--no-deps', '--only-binary=:all:'];
    const files = requirements.flatMap((file) => ['--requirement', file]);
    const install = [...pip, '--retries=2', '--disable-pip-version-check', ...files];
    let installed = await run(join(draft, 'bin/python'), install);
    if (
      installed.code !== 0 &&
      installed.output.includes('No matching distribution found for torch')
    ) {
      report(`no CPU build of torch in pip's indexes: trying ${torchIndex}, too`);
      const indexes = ['--extra-index-url', torchIndex];
      installed = await run(join(draft, 'bin/python'), [...install, ...indexes]);
    }
    signal?.throwIfAborted();
    if (installed.code !== 0) {
      const isLate = Date.now() >= deadline;
      const found = isLate
        ? `not done after ${timeoutMs / 60_000} min`
        : lastLine(installed.output);
      throw new UserError(
        `pip could not install the Python packages: ${found} (required by ${requirements.join(', ')})`,
      );
    }
  });
  return join(home, 'bin/python');
}

/**
 * Creates a folder unless it exists. `fill` creates it under another name, and the rename comes last: no process sees
 * a partial folder, and two that create it do not collide.
 */
export async function createFolderOnce(
  folder: string,
  fill: (draft: string) => Promise<void>,
): Promise<void> {
  if (await exists(folder)) return;
  const draft = `${folder}.${randomUUID()}`;
  try {
    await mkdir(dirname(folder), { recursive: true });
    await fill(draft);
    await rename(draft, folder).catch(async (caught: unknown) => {
      if (!(await exists(folder))) throw caught; // else another process was faster
    });
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

async function digest(pythonVersion: string, requirements: readonly string[]): Promise<string> {
  const hash = createHash('sha256').update(pythonVersion);
  for (const file of requirements) hash.update('\0').update(await readFile(file));
  return hash.digest('hex').slice(0, 16);
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
