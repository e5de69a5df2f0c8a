import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UserError } from '../../shared/base/errors.js';
import type { Identity } from '../../shared/broker/permissions.js';
import { describeExit, ManagedProcess, tieToParent } from '../processes/managed-process.js';
import { logTail } from '../processes/log-tail.js';
import { accountsText, adoptStreams } from './accounts.js';
import {
  type NatsUser,
  type ServerCertificate,
  authorityFile,
  certificateIn,
  writeKeys,
} from './keys.js';
import { forgetPorts, JetStream, newestPorts, waitForNoServer, type NatsPorts } from './running.js';

/** Where one run's server listens and keeps its streams. */
interface ServerConfig {
  readonly run: string;
  readonly storeFolder: string;
  /** The server writes the ports that it took into a file in here. */
  readonly portsFolder: string;
  readonly port?: number | undefined; // by default chosen by the system
  /** Only these identities are accepted. */
  readonly users: readonly NatsUser[];
  readonly certificate?: ServerCertificate | undefined; // no TLS without one
}

/**
 * The text of nats-server's configuration: loopback only, by default with ports that the system chooses,
 * so that no other process can take them first, and JetStream in the run's own folder.
 *
 * By default JetStream would accept only three quarters of what is free on the disk when the server starts, and count
 * what it has stored before as well. A server that starts on a nearly full disk would then refuse every write for good,
 * however much room there is later. A disk that is really full is noticed by the failing write (DiskWatch).
 */
function serverConfigText(config: ServerConfig): string {
  const { run, storeFolder, portsFolder, users, certificate, port = -1 } = config;
  return `# Written by offbeat up; the server ends with the run.
host: "127.0.0.1"
port: ${port}
http: "127.0.0.1:-1"
ports_file_dir: ${JSON.stringify(portsFolder)}
jetstream {
  store_dir: ${JSON.stringify(storeFolder)}
  max_file_store: 1TB
}
${accountsBlock(accountsText(run, users))}${certificate === undefined ? '' : tlsText(certificate)}`;
}

/** The accounts of one run. A server that several runs share has one block with those of each. */
export function accountsBlock(accounts: string): string {
  return `accounts {\n${accounts}}\n`;
}

/** TLS 1.2 and newer, for every client. */
export function tlsText({ certificateFile, keyFile }: ServerCertificate): string {
  return `tls {
  cert_file: ${JSON.stringify(certificateFile)}
  key_file: ${JSON.stringify(keyFile)}
}
`;
}

const pollMs = 50;

export interface RunningNats extends NatsPorts {
  readonly process: ManagedProcess;
  /** Folder with the secret of each identity. */
  readonly keyFolder: string;
}

interface StartOptions {
  readonly run: string; // whose names the identities may use
  readonly identities: readonly Identity[]; // whose keys are accepted
  readonly withTls?: boolean;
  readonly deadlineMs: number; // whole
  readonly deadlineFlag?: string; // by which users allow more time
  readonly signal: AbortSignal;
  /** Of loopback, where clients wait for it to come back; by default one of the system's choice. */
  readonly port?: number | undefined;
}

/** A server whose launcher was killed ends within about 5 s. */
const earlierServerMs = 15_000;

/**
 * Starts a server that belongs to one run: on loopback, with JetStream storing under `folder`.
 *
 * @param folder absolute; receives configuration, keys, ports file and store. In the folder of a run, the caller
 *   has locked it: there may be servers that cannot be seen from here.
 * @throws {UserError} if an earlier server on that store does not end, or this one does not become healthy with JetStream
 *   on in time; it is stopped then.
 * @throws {Error} if it ended, with the end of its log.
 */
export async function startNats(
  binary: string,
  folder: string,
  logPath: string,
  { run, identities, withTls = false, deadlineMs, deadlineFlag, signal, port }: StartOptions,
): Promise<RunningNats> {
  await mkdir(folder, { recursive: true });
  await waitForNoServer(folder, { limitMs: Math.min(deadlineMs, earlierServerMs), signal });
  const config = join(folder, 'nats-server.conf');
  const storeFolder = join(folder, 'store');
  const keyFolder = keyFolderIn(folder);
  const users = await writeKeys(keyFolder, run, identities);
  const certificate = withTls ? await certificates(keyFolder, port !== undefined) : undefined;
  if (!withTls) await rm(join(keyFolder, authorityFile), { force: true }); // of an earlier start
  await writeFile(
    config,
    serverConfigText({ run, storeFolder, portsFolder: folder, users, certificate, port }),
  );
  await adoptStreams(storeFolder, run);
  await forgetPorts(folder);

  const server = new ManagedProcess(tieToParent({ file: binary, args: ['-c', config] }), logPath);
  const limit = AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]);
  let reason = 'it wrote no ports file';
  try {
    for (;;) {
      const ports = await newestPorts(folder);
      if (ports !== undefined) {
        const problem = await ailment(ports.monitoringUrl);
        if (problem === undefined) return { process: server, keyFolder, ...ports };
        reason = problem;
      }
      const exit = await Promise.race([server.exited, sleep(pollMs)]);
      if (exit !== undefined) {
        reason = `it ${describeExit(exit)}`;
        break;
      }
      if (limit.aborted) break;
    }
    signal.throwIfAborted();
    const tail = await logTail(logPath, 10);
    const text = [`nats-server did not become ready: ${reason}`, ...tail].join('\n  ');
    if (!limit.aborted) throw new Error(text);
    const remedy = deadlineFlag === undefined ? '' : `; ${deadlineFlag} allows more`;
    throw new UserError(`${text}\n  within ${deadlineMs / 1_000} s${remedy}`);
  } catch (caught) {
    await server.stop(0, limit);
    throw caught;
  }
}

/** Where the keys of the server that uses `folder` are. */
export function keyFolderIn(folder: string): string {
  return join(folder, 'keys');
}

/** @param isKept whether existing ones are used, since clients trust them already. */
async function certificates(folder: string, isKept: boolean): Promise<ServerCertificate> {
  if (isKept) return certificateIn(folder);
  const { writeCertificates } = await import('./certificates.js'); // slow to load, and rarely needed
  return await writeCertificates(folder, ['127.0.0.1', 'localhost']);
}

/** Why the server cannot be used yet, or undefined when it is healthy and has JetStream. */
async function ailment(monitoringUrl: string): Promise<string | undefined> {
  try {
    const get = (path: string) =>
      fetch(monitoringUrl + path, { signal: AbortSignal.timeout(2_000) });
    const health = await get('/healthz?js-enabled=true');
    if (!health.ok) return `/healthz answers ${health.status}: ${await health.text()}`;
    const jetStream = JetStream.safeParse(await (await get('/jsz')).json());
    return jetStream.success ? undefined : 'JetStream is not on';
  } catch {
    return 'its monitoring port does not answer';
  }
}
