import { Empty, Events, headers } from 'nats';
import type { Broker } from './broker.js';
import { ask } from './link.js';
import type { Permissions } from './permissions.js';

/** Facts that a NATS server reports about itself and our account. */
export interface ServerFacts {
  readonly version: string;
  readonly isCluster: boolean;
  readonly maxPayload: number; // bytes per message
  readonly storage: Allowance; // bytes on disk
  readonly streams: Allowance;
}

export interface Allowance {
  readonly used: number;
  readonly limit: number | undefined; // undefined: unlimited
}

export async function inspectServer({ link }: Broker): Promise<ServerFacts> {
  const { version = '0.0.0', max_payload = 0, cluster } = link.connection.info ?? {};
  const account = await ask(link, 'read the account', () => link.jsm.getAccountInfo());
  const { max_storage, max_streams } = account.limits;
  return {
    version,
    isCluster: cluster !== undefined,
    maxPayload: max_payload,
    storage: { used: account.storage, limit: limitOf(max_storage) },
    streams: { used: account.streams, limit: limitOf(max_streams) },
  };
}

/** NATS reports -1 for no limit, and 0 for an account without JetStream, which `connectBroker` refuses. */
function limitOf(value: number | undefined): number | undefined {
  return value === undefined || value <= 0 ? undefined : value;
}

/**
 * Returns the subjects of the permissions that the server refuses to this connection. Changes nothing:
 * published probes expect a stream that does not exist, so no stream stores them, and requests have no body.
 * Calls that would still have an effect are skipped.
 */
export async function refusedSubjects(broker: Broker, wanted: Permissions): Promise<string[]> {
  const { connection } = broker.link;
  const refused = new Set<string>();
  const probes = new Map(
    wanted.publish.filter(isHarmless).map((subject) => [concrete(subject), subject]),
  );
  // Ends with the connection.
  void (async () => {
    for await (const { type, permissionContext } of connection.status()) {
      if (type !== Events.Error || permissionContext === undefined) continue;
      const { subject, operation } = permissionContext;
      refused.add(operation === 'publish' ? (probes.get(subject) ?? subject) : subject);
    }
  })();
  const subscriptions = wanted.subscribe.map((subject) =>
    connection.subscribe(subject, { callback: () => undefined }),
  );
  const nowhere = headers();
  nowhere.set('Nats-Expected-Stream', 'OFFBEAT_DOCTOR_STORES_NOTHING');
  for (const subject of probes.keys()) connection.publish(subject, Empty, { headers: nowhere });
  await connection.flush(); // errors arrive before the answer to this
  await new Promise(setImmediate); // and have been reported by then
  for (const subscription of subscriptions) {
    if (!subscription.isClosed()) subscription.unsubscribe();
  }
  const known = [...wanted.subscribe, ...probes.values()];
  return known.filter((subject) => refused.has(subject));
}

/** Whether a subject can be probed: fetching, settling and deleting cannot be tried without effect. */
function isHarmless(subject: string): boolean {
  if (!subject.startsWith('$JS.')) return true;
  return /^\$JS\.API\.(INFO$|STREAM\.(INFO|CREATE|UPDATE)\.|CONSUMER\.INFO\.)/.test(subject);
}

/** Returns a concrete subject that matches the pattern. */
function concrete(subject: string): string {
  return subject.replaceAll('*', 'doctor').replace(/>$/, 'doctor');
}
