import type { Identity } from '../../shared/broker/permissions.js';
import { offbeatProgram } from '../../shared/base/package-root.js';
import { environmentName } from '../../shared/service/config.js';
import { accessWith } from '../nats-server/keys.js';
import type { ServiceName } from '../services.js';
import type { Member } from './fleet.js';
import { freePort } from './free-port.js';

/** A server, and the folder of the keys to it, if it requires any. */
export interface NatsPlace {
  readonly natsUrl: string;
  readonly keyFolder: string | undefined;
}

/** By environment, since the URL of the user's own server may hold a password. */
export function natsEnvironment(
  service: ServiceName,
  { natsUrl, keyFolder }: NatsPlace,
  identity: Identity,
): Record<string, string> {
  const settings: Record<string, string> = { natsUrl, ...accessWith(keyFolder, identity) };
  return Object.fromEntries(
    Object.entries(settings).map(([key, value]) => [environmentName(service, key), value]),
  );
}

/**
 * The command of a service of this program, with a port of its own for its health. Keys are passed by environment, since
 * every user can see flags in the process list.
 */
export async function serviceCommand(
  service: ServiceName,
  {
    flags,
    more = [],
    env = {},
  }: {
    flags: Readonly<Record<string, string>>;
    more?: readonly string[];
    env?: Readonly<Record<string, string>>;
  },
): ReturnType<Member['command']> {
  const healthPort = await freePort();
  const words = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  return {
    file: process.execPath,
    args: [
      offbeatProgram,
      service,
      ...[...words, '--health-host=127.0.0.1', `--health-port=${healthPort}`],
      ...more,
    ],
    env,
    healthUrl: `http://127.0.0.1:${healthPort}`,
  };
}
