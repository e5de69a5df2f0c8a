import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { lastLine, runCommand } from '../../cli/run-command.js';
import { UserError } from '../../shared/base/errors.js';
import { cacheFolder } from '../../shared/base/package-root.js';
import { createFolderOnce } from '../../tools/tuft-cpu/environment.js';
import type { SuiteContext } from './suite.js';

/**
 * A folder with other versions of packages than those of the environment, which stays as it is. Folders are in the
 * project's cache under a digest of the environment and the requirements.
 *
 * @param requirements exact versions, `tinker==0.38.0`; their dependencies must be in the list or the environment.
 * @param cache where the folder is created; the default is shared by all runs.
 * @throws {UserError} if pip cannot install them: no network, or no such version.
 */
export async function ensurePackages(
  { python, signal, note }: Pick<SuiteContext, 'python' | 'signal' | 'note'>,
  requirements: readonly string[],
  cache = join(cacheFolder, 'python-packages'),
): Promise<string> {
  const key = createHash('sha256')
    .update([python, ...requirements].join('\0'))
    .digest('hex');
  const folder = join(cache, key.slice(0, 16));
  await createFolderOnce(folder, async (draft) => {
    note(`  installing ${requirements.join(' ')} in ${folder}`);
    const pip = ['-m', 'pip', 'install', '--quiet', '--retries=2', '--disable-pip-version-check'];
    const install = [...pip, '--no-deps', '--only-binary=:all:', '--target', draft];
    const options = { timeoutMs: 180_000, signal };
    const done = await runCommand(python, [...install, ...requirements], options);
    signal.throwIfAborted();
    if (done.code === 0) return;
    throw new UserError(`pip cannot install ${requirements.join(' ')}: ${lastLine(done.output)}`);
  });
  return folder;
}

/** The variables with which Python finds the packages of a folder before those of the environment. */
export function pathOf(packages: string | undefined): NodeJS.ProcessEnv {
  return packages === undefined ? {} : { PYTHONPATH: packages };
}
