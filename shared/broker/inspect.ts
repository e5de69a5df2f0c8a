import { Empty, Events, headers } from 'nats';
import type { Broker } from './broker.js';
import { ask } from './link.js';
import type { Permissions } from './permissions.js';

/** What a NATS server says of itself and of the account that we have there. */
export interface ServerFacts {
  readonly version: string;
  readonly isCluster: boolean;
  readonly maxPayload: number; // bytes of a message
  readonly storage: Allowance; // bytes on disk
  readonly streams: Allowance;
}

export interface Allowance {
  readonly used: number;
  readonly limit: number | undefined; // none: as much as the server has
}

export async function inspectServer({ link }: Broker): Promise<ServerFacts> {
  const { version = '0.0.0', max_payload = 0, cluster } = link.connection.info ?? {};
  const account = await ask(link, 'look at the account', () => link.jsm.getAccountInfo());
  const { max_storage, max_streams } = account.limits;
  return {
    version,
    isCluster: cluster !== undefined,
    maxPayload: max_payload,
    storage: { used: account.storage, limit: limitOf(max_storage) },
    streams: { used: account.streams, limit: limitOf(max_streams) },
  };
}

/** In NATS -1 is no limit; 0 is one where an account has no JetStream, which `connectBroker` tells. */
function limitOf(value: number | undefined): number | undefined {
  return value === undefined || value <= 0 ? undefined : value;
}

/**
 * The subjects, of those that the permissions name, that the server refuses to this connection. Nothing is
 * changed: what is published names a stream that it expects and that does not exist, so that none stores
 * it, and requests have no body that could be obeyed. Calls that would act all the same are left out.
 */
export async function refusedSubjects(broker: Broker, wanted: Permissions): Promise<string[]> {
  const { connection } = broker.link;
  const refused = new Set<string>();
  const probes = new Map(
    wanted.publish.filter(isHarmless).map((subject) => [concrete(subject), subject]),
  );
  // It ends with the connection.
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
  await connection.flush(); // errors come before the answer to this
  await new Promise(setImmediate); // and are told of by then
  for (const subscription of subscriptions) {
    if (!subscription.isClosed()) subscription.unsubscribe();
  }
  const known = [...wanted.subscribe, ...probes.values()];
  return known.filter((subject) => refused.has(subject));
}

/** To take a message, settle one or delete something cannot be tried without doing it. */
function isHarmless(subject: string): boolean {
  if (!subject.startsWith('$JS.')) return true;
  return /^\$JS\.API\.(INFO$|STREAM\.(INFO|CREATE|UPDATE)\.|CONSUMER\.INFO\.)/.test(subject);
}

/** A subject that the pattern stands for. */
function concrete(subject: string): string {
  return subject.replaceAll('*', 'doctor').replace(/>$/, 'doctor');
}
