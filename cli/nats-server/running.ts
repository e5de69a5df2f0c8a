import { readdir, realpath, rm } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { readJson } from '../../shared/base/read-json.js';

/** What nats-server writes into its ports folder once it listens, and removes as it ends. */
const PortsFile = z.object({ nats: z.tuple([z.url()]), monitoring: z.tuple([z.url()]) });

/** The part of `/jsz` with the folder of the streams. */
export const JetStream = z.object({ config: z.object({ store_dir: z.string().min(1) }) });

/** Where one of our servers listens. */
export interface NatsPorts {
  readonly url: string; // nats://127.0.0.1:42229
  readonly monitoringUrl: string;
}

/**
 * The server that now keeps its streams under `folder`, if there is one: a server that was killed
 * leaves its ports file, and any process may take its ports.
 */
export async function findRunningNats(folder: string): Promise<NatsPorts | undefined> {
  const store = await realPath(join(folder, 'store'));
  for (const name of await portsFiles(folder)) {
    const ports = await readPorts(join(folder, name));
    if (ports === undefined) continue;
    try {
      const response = await fetch(`${ports.monitoringUrl}/jsz`, {
        signal: AbortSignal.timeout(2_000),
      });
      const jetStream = JetStream.safeParse(await response.json());
      if (!jetStream.success) continue;
      const open = await realPath(jetStream.data.config.store_dir);
      if (open === store || open.startsWith(store + sep)) return ports;
    } catch {
      // The port is closed, or another process listens there.
    }
  }
  return undefined;
}

/** The path without links: a run may be found by several. */
function realPath(path: string): Promise<string> {
  return realpath(path).catch(() => path);
}

/**
 * Waits until no server keeps its streams under `folder`: that of a killed process ends some seconds after it.
 *
 * @throws {UserError} if one is still there after `limitMs`.
 */
export async function waitForNoServer(
  folder: string,
  { limitMs, signal }: { readonly limitMs: number; readonly signal: AbortSignal },
): Promise<void> {
  const deadline = performance.now() + limitMs;
  for (;;) {
    const running = await findRunningNats(folder);
    if (running === undefined) return;
    if (performance.now() > deadline) {
      throw new UserError(
        `the nats-server at ${running.url} keeps its streams in ${folder}, and a second one would damage them; end it first`,
      );
    }
    await sleep(100, undefined, { signal });
  }
}

/** Where the server that was started last listens; undefined while it is still starting. */
export async function newestPorts(folder: string): Promise<NatsPorts | undefined> {
  const [name] = await portsFiles(folder);
  return name === undefined ? undefined : await readPorts(join(folder, name));
}

/** Deletes the ports files of killed servers. The caller has made sure that none runs. */
export async function forgetPorts(folder: string): Promise<void> {
  for (const name of await portsFiles(folder)) await rm(join(folder, name), { force: true });
}

async function portsFiles(folder: string): Promise<string[]> {
  return (await readdir(folder)).filter((file) => file.endsWith('.ports'));
}

async function readPorts(path: string): Promise<NatsPorts | undefined> {
  try {
    const { nats, monitoring } = PortsFile.parse(await readJson(path));
    return { url: nats[0], monitoringUrl: monitoring[0] };
  } catch {
    return undefined; // still being written
  }
}
