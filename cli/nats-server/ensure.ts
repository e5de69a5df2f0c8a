import { join } from 'node:path';
import { UserError } from '../../shared/base/errors.js';
import { cacheFolder } from '../../shared/base/package-root.js';
import {
  probeNatsBinary,
  type NatsBinary,
  findExecutables,
  searchFolders,
  findInCache,
} from './binary.js';
import {
  takeDebianPackage,
  takeRelease,
  pinnedRelease,
  releaseArchive,
  type Release,
} from './download.js';
import type { Environment } from '../../shared/service/config.js';

export interface EnsureOptions {
  readonly env: Environment;
  /** Receives a line before each slow action. */
  readonly report: (line: string) => void;
  readonly signal?: AbortSignal;
  readonly cache?: string;
  readonly folders?: readonly string[];
  readonly release?: Release;
}

const defaultCache = join(cacheFolder, 'nats');

/**
 * The nats-server that this machine has, from the first of: OFFBEAT_NATS_SERVER, PATH and the system's
 * folders, the project's cache.
 *
 * @returns why each place has none, if there is none.
 * @throws {UserError} when OFFBEAT_NATS_SERVER names something unusable.
 */
export async function findInstalled({
  env,
  cache = defaultCache,
  folders = searchFolders(env['PATH']),
}: Pick<EnsureOptions, 'env' | 'cache' | 'folders'>): Promise<NatsBinary | string[]> {
  const named = env['OFFBEAT_NATS_SERVER'];
  if (named !== undefined && named !== '') {
    const found = await probeNatsBinary(named);
    if (typeof found !== 'string') return found;
    throw new UserError(
      `OFFBEAT_NATS_SERVER cannot be used: ${found}; name a nats-server, or unset it to have one found or fetched`,
    );
  }

  const failures: string[] = [];
  const onPath = await findExecutables('nats-server', folders);
  for (const path of onPath) {
    const found = await probeNatsBinary(path);
    if (typeof found !== 'string') return found;
    failures.push(found);
  }
  if (onPath.length === 0) failures.push('no nats-server on PATH');

  const cached = await findInCache(cache);
  if (cached !== undefined) return cached;
  return [...failures, `none in the cache ${cache}`];
}

/**
 * A nats-server for this machine: an installed one, else that of the distribution's package, else the official
 * release. What is fetched goes into the cache; the system itself is never changed.
 *
 * @throws {UserError} when OFFBEAT_NATS_SERVER names something unusable, or when every way failed:
 * it names each with its reason.
 */
export async function ensureNatsServer({
  env,
  report,
  signal,
  cache = defaultCache,
  folders = searchFolders(env['PATH']),
  release = pinnedRelease,
}: EnsureOptions): Promise<NatsBinary> {
  const failures = await findInstalled({ env, cache, folders });
  if (!Array.isArray(failures)) return failures;

  const [aptGet] = await findExecutables('apt-get', folders);
  const [dpkgDeb] = await findExecutables('dpkg-deb', folders);
  if (aptGet !== undefined && dpkgDeb !== undefined) {
    report('fetching nats-server: the package of this distribution');
    const taken = await takeDebianPackage(cache, { aptGet, dpkgDeb }, signal);
    if (typeof taken !== 'string') return taken;
    failures.push(taken);
  } else failures.push('no apt-get and dpkg-deb to fetch the package of Debian or Ubuntu');

  const archive = releaseArchive(release, process.platform, process.arch);
  if (archive === undefined) {
    failures.push(`no pinned release archive for ${process.platform} on ${process.arch}`);
  } else {
    report(`fetching nats-server: ${archive.url}`);
    const taken = await takeRelease(cache, archive, signal);
    if (typeof taken !== 'string') return taken;
    failures.push(taken);
  }

  throw new UserError(
    [
      'no nats-server was found or downloaded:',
      ...failures.map((line) => `  - ${line}`),
      'Install nats-server 2.9 or newer so that it is on PATH, or set OFFBEAT_NATS_SERVER to its file,',
      'or use a running one: --nats-url nats://host:4222 (JetStream on)',
    ].join('\n'),
  );
}
