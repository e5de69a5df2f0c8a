import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { lastLine, runCommand } from './run-command.js';

/** Disables the system's hooks after an update, which would write outside the private folders. */
const aptConfiguration = `#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`;

/** apt-get and dpkg-deb, as found on this machine. */
export interface DebianTools {
  readonly aptGet: string;
  readonly dpkgDeb: string;
}

/**
 * Takes a package of the distribution, signed as the distribution signs it, and hands its unpacked
 * files to `use`. Nothing is installed and nothing outside `folder` is written, so it works without
 * root; the package lists are fetched to a private place when the system has none.
 *
 * @param use given the folder that holds the package's `usr` and so on, which is gone afterwards.
 * @returns what `use` returns, or a sentence saying why the package is unavailable.
 */
export async function withDebianPackage<Result>(
  name: string,
  folder: string,
  { aptGet, dpkgDeb }: DebianTools,
  use: (unpacked: string) => Promise<Result>,
  signal?: AbortSignal,
): Promise<Result | string> {
  await mkdir(folder, { recursive: true });
  const work = await mkdtemp(join(folder, 'debian-'));
  try {
    const lists = join(work, 'lists');
    const cache = join(work, 'cache');
    await mkdir(join(lists, 'partial'), { recursive: true });
    await mkdir(join(cache, 'archives', 'partial'), { recursive: true });
    await writeFile(join(work, 'apt.conf'), aptConfiguration);

    const apt = (timeoutMs: number, ...args: string[]) => {
      const settings = [`Dir::Cache=${cache}`, 'Acquire::Retries=1', 'Acquire::http::Timeout=20'];
      // apt's own sandbox user may not be able to reach a private folder.
      if (process.getuid?.() === 0) settings.push('APT::Sandbox::User=root');
      const options = settings.flatMap((setting) => ['-o', setting]);
      return runCommand(aptGet, ['-q', '-c', join(work, 'apt.conf'), ...options, ...args], {
        cwd: work,
        timeoutMs,
        ...(signal !== undefined && { signal }),
      });
    };

    let download = await apt(120_000, 'download', name);
    if (download.code !== 0) {
      const ownLists = ['-o', `Dir::State::Lists=${lists}`];
      // One unreachable source among several fails the update, yet the package may be there.
      await apt(180_000, ...ownLists, 'update');
      download = await apt(120_000, ...ownLists, 'download', name);
    }
    const packageFile = (await readdir(work)).find((file) => file.endsWith('.deb'));
    if (download.code !== 0 || packageFile === undefined) {
      return `apt-get download ${name}: ${lastLine(download.output)}`;
    }

    const unpacked = join(work, 'unpacked');
    const unpack = await runCommand(dpkgDeb, ['-x', join(work, packageFile), unpacked], {
      timeoutMs: 60_000,
    });
    if (unpack.code !== 0) return `dpkg-deb -x ${packageFile}: ${lastLine(unpack.output)}`;
    return await use(unpacked);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}
