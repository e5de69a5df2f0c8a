import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { accessWith } from '../../cli/nats-server/keys.js';
import { findExecutables, searchFolders } from '../../cli/nats-server/binary.js';
import { startNats, type RunningNats } from '../../cli/nats-server/start.js';
import type { Broker } from '../../shared/broker/broker.js';
import { type BrokerOptions, connectBroker } from '../../shared/broker/connect.js';
import { type Identity, identityName } from '../../shared/broker/permissions.js';
import { silent } from './log.js';

/** One of each role, and a second actor. */
export const everybody = {
  learner: { role: 'learner' },
  reward: { role: 'reward' },
  observer: { role: 'observer' },
  actor: { role: 'actor', actor: 'actor-0' },
  other: { role: 'actor', actor: 'actor-1' },
} as const satisfies Readonly<Record<string, Identity>>;

/** A server as `npm start` starts it for a run, with a key for each role, in a temporary folder. */
export class GuardedServer implements AsyncDisposable {
  private constructor(
    readonly run: string,
    readonly folder: string,
    readonly nats: RunningNats,
  ) {}

  static async start(
    identities: readonly Identity[],
    { withTls = false, run = 'guarded' } = {},
  ): Promise<GuardedServer> {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-guarded-'));
    const [found] = await findExecutables('nats-server', searchFolders(process.env['PATH']));
    const binary = process.env['OFFBEAT_NATS_SERVER'] ?? found;
    if (binary === undefined) throw new Error('OFFBEAT_NATS_SERVER names a nats-server');
    const signal = new AbortController().signal;
    const options = { run, identities, withTls, deadlineMs: 20_000, signal };
    const log = join(folder, 'nats-server.log');
    return new GuardedServer(run, folder, await startNats(binary, folder, log, options));
  }

  /** A connection with the identity's own key. */
  connect(identity: Identity, over: Partial<BrokerOptions> = {}): Promise<Broker> {
    return connectBroker({
      natsUrl: this.nats.url,
      ...accessWith(this.nats.keyFolder, identity),
      run: this.run,
      client: identityName(identity),
      identity,
      log: silent,
      signal: new AbortController().signal,
      ...over,
    });
  }

  /** The server's refusal messages. */
  async refusals(): Promise<string[]> {
    const log = await readFile(join(this.folder, 'nats-server.log'), 'utf8');
    return log.split('\n').filter((line) => /violation/i.test(line));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.nats.process.stop(10_000, new AbortController().signal);
    await rm(this.folder, { recursive: true, force: true });
  }
}
