import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runCommand } from '../run-command.js';
import type { NatsBinary } from './binary.js';
import { storeInCache } from './cache.js';

/** The system's hooks after an update would write outside the private folders. */
const aptConfiguration = `#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`;

/**
 * Takes the distribution's nats-server package, signed as the distribution signs it, and unpacks
 * its server into the cache. Nothing is installed and nothing outside `folder` is written, so it
 * works without root; the package lists are fetched to a private place when the system has none.
 *
 * @param aptGet apt-get and `dpkgDeb` dpkg-deb, as found on this machine.
 * @returns a sentence saying why not, when the package cannot be had.
 */
export async function takeDebianPackage(
  folder: string,
  { aptGet, dpkgDeb }: { aptGet: string; dpkgDeb: string },
  signal?: AbortSignal,
): Promise<NatsBinary | string> {
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

    let download = await apt(120_000, 'download', 'nats-server');
    if (download.code !== 0) {
      const ownLists = ['-o', `Dir::State::Lists=${lists}`];
      // One unreachable source among several fails the update, yet the package may be there.
      await apt(180_000, ...ownLists, 'update');
      download = await apt(120_000, ...ownLists, 'download', 'nats-server');
    }
    const packageFile = (await readdir(work)).find((name) => name.endsWith('.deb'));
    if (download.code !== 0 || packageFile === undefined) {
      return `apt-get download nats-server: ${lastLine(download.output)}`;
    }

    const unpacked = join(work, 'unpacked');
    const unpack = await runCommand(dpkgDeb, ['-x', join(work, packageFile), unpacked], {
      timeoutMs: 60_000,
    });
    if (unpack.code !== 0) return `dpkg-deb -x ${packageFile}: ${lastLine(unpack.output)}`;
    return await storeInCache(folder, join(unpacked, 'usr', 'sbin', 'nats-server'));
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

function lastLine(output: string): string {
  return output.split('\n').at(-1)?.trim() || 'it ended without a word';
}
