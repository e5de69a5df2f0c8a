import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorText } from '../../shared/base/errors.js';
import { cacheFolder } from '../../shared/base/package-root.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { type NatsBinary, probeNatsBinary } from '../nats-server/binary.js';
import { findInCache } from '../nats-server/cache.js';
import { identitiesOf } from '../nats-server/keys.js';
import { findExecutables, searchFolders } from '../nats-server/on-path.js';
import { startNats } from '../nats-server/start.js';
import { graceMs } from '../processes/members.js';
import { finding, type Finding } from './finding.js';
import { natsFindings } from './nats.js';

interface OwnNatsQuestion {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly hurry: AbortSignal;
}

/** Starts a server as `npm start` would, in a temporary folder, and looks at it with keys of its own. */
export async function ownNatsFindings(question: OwnNatsQuestion): Promise<Finding[]> {
  const { env, log, signal, hurry } = question;
  const binary = await installed(env);
  if (typeof binary === 'string') return [finding('nats', 'warning', binary, 'noNatsServer')];
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-doctor-nats-'));
  const run = 'doctor';
  const identities = identitiesOf(['actor-0']);
  const options = { run, identities, deadlineMs: 20_000, signal };
  try {
    const nats = await startNats(binary.path, folder, join(folder, 'log'), options);
    try {
      const { url: natsUrl, keyFolder: natsKeys } = nats;
      return await natsFindings({ natsUrl, natsKeys, run, log, signal });
    } finally {
      await nats.process.stop(graceMs, hurry);
    }
  } catch (caught) {
    signal.throwIfAborted();
    return [finding('nats', 'error', errorText(caught), 'natsDoesNotStart')];
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The server that would be taken, without fetching one; else why there is none. */
async function installed(env: OwnNatsQuestion['env']): Promise<NatsBinary | string> {
  const named = env['OFFBEAT_NATS_SERVER'];
  if (named !== undefined && named !== '') return await probeNatsBinary(named);
  for (const path of await findExecutables('nats-server', searchFolders(env['PATH']))) {
    const found = await probeNatsBinary(path);
    if (typeof found !== 'string') return found;
  }
  const cached = await findInCache(join(cacheFolder, 'nats'));
  return cached ?? 'there is no nats-server on the PATH or in the cache';
}
