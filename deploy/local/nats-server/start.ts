import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describeExit } from '../exit.js';
import { logTail } from '../log-tail.js';
import { ManagedProcess } from '../managed-process.js';
import { tieToParent } from '../tie-to-parent.js';
import { forgetPorts, JetStream, newestPorts, type NatsPorts } from './running.js';
import { serverConfigText } from './server-config.js';

const pollMs = 50;

export interface RunningNats extends NatsPorts {
  readonly process: ManagedProcess;
}

/**
 * Starts a server that belongs to one run: on loopback, with JetStream storing under `folder`.
 *
 * @param folder absolute; receives configuration, ports file and store.
 * @param options.port of loopback; by default one of the system's choice.
 * @throws when it ended, or did not become healthy with JetStream on in `deadlineMs`, with the end
 * of its log; the process is stopped then.
 */
export async function startNats(
  binary: string,
  folder: string,
  logPath: string,
  {
    deadlineMs,
    signal,
    port,
  }: { deadlineMs: number; signal: AbortSignal; port?: number | undefined },
): Promise<RunningNats> {
  await mkdir(folder, { recursive: true });
  const config = join(folder, 'nats-server.conf');
  const storeFolder = join(folder, 'store');
  await writeFile(config, serverConfigText({ storeFolder, portsFolder: folder, port }));
  await forgetPorts(folder);

  const server = new ManagedProcess(tieToParent({ file: binary, args: ['-c', config] }), logPath);
  const limit = AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]);
  let reason = 'it wrote no ports file';
  try {
    for (;;) {
      const ports = await newestPorts(folder);
      if (ports !== undefined) {
        const problem = await ailment(ports.monitoringUrl);
        if (problem === undefined) return { process: server, ...ports };
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
    throw new Error([`nats-server did not become ready: ${reason}`, ...tail].join('\n  '));
  } catch (caught) {
    await server.stop(0, limit);
    throw caught;
  }
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
