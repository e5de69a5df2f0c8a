import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { errorText } from '../../shared/base/errors.js';
import { connectBroker, NatsUnusable, shownAddress } from '../../shared/broker/connect.js';
import { inspectServer, refusedSubjects, type ServerFacts } from '../../shared/broker/inspect.js';
import { runNames } from '../../shared/broker/names.js';
import { identityName, permissionsOf, type Identity } from '../../shared/broker/permissions.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { compareVersions, oldestVersion } from '../nats-server/binary.js';
import { findInstalled } from '../nats-server/ensure.js';
import { accessWith, identitiesIn, identitiesOf } from '../nats-server/keys.js';
import { startNats } from '../nats-server/start.js';
import { graceMs } from '../processes/members.js';
import { finding, ok, type Finding, type Trouble } from './finding.js';
import type { Environment } from '../../shared/service/config.js';

export interface NatsQuestion {
  readonly natsUrl: string;
  readonly natsKeys: string | undefined; // the folder
  readonly run: string | undefined;
  readonly log: Logger;
  readonly signal: AbortSignal;
}

const connectTimeoutMs = 3_000;
const streamsOfARun = 11;
const neededStorage = 2 ** 30;
const neededPayload = 2 ** 20;

/** Findings about a running server, its JetStream, and the rights of each key. */
export async function natsFindings(question: NatsQuestion): Promise<Finding[]> {
  const { natsKeys, run } = question;
  let identities: readonly Identity[];
  try {
    identities = natsKeys === undefined ? [] : await identitiesIn(natsKeys);
  } catch (caught) {
    const found = `${natsKeys} cannot be read (${errorText(caught)})`;
    return [finding('nats-permissions', 'error', found, 'noKey')];
  }
  const first = identities.find(({ role }) => role === 'observer') ?? identities[0];
  const facts = await ask(question, first, (broker) => inspectServer(broker));
  if ('level' in facts) return [facts];
  const findings = serverFindings(facts, shownAddress(question.natsUrl));
  const check = 'nats-permissions';
  if (run === undefined) {
    return [...findings, finding(check, 'skipped', 'no run is named', 'permissionsUnknown')];
  }
  if (identities.length === 0) {
    const found = natsKeys === undefined ? 'no keys are given' : `${natsKeys} has no keys`;
    return [
      ...findings,
      finding(check, natsKeys === undefined ? 'skipped' : 'error', found, 'noKey'),
    ];
  }
  for (const identity of identities) findings.push(await keyFinding(question, run, identity));
  return findings;
}

/** @param place the server's address, as it may be shown. */
export function serverFindings(facts: ServerFacts, place: string): Finding[] {
  const { version, isCluster, maxPayload, storage, streams } = facts;
  const found = `nats-server ${version} at ${place}${isCluster ? ', in a cluster' : ''}`;
  const free = storage.limit === undefined ? Infinity : storage.limit - storage.used;
  const left = streams.limit === undefined ? Infinity : streams.limit - streams.used;
  const room = `${mib(storage.used)} MiB of ${storage.limit === undefined ? 'the disk' : `${mib(storage.limit)} MiB`} in ${streams.used} streams`;
  const jetStream =
    free < neededStorage
      ? finding('jetstream', 'warning', room, 'littleStorage')
      : left < streamsOfARun
        ? finding('jetstream', 'error', `${room}, and ${left} more are allowed`, 'fewStreams')
        : ok('jetstream', room);
  return [
    compareVersions(version, oldestVersion) < 0
      ? finding('nats', 'error', found, 'oldNats')
      : maxPayload < neededPayload
        ? finding(
            'nats',
            'warning',
            `${found}, for messages up to ${maxPayload} bytes`,
            'smallPayload',
          )
        : ok('nats', found),
    jetStream,
  ];
}

async function keyFinding(
  question: NatsQuestion,
  run: string,
  identity: Identity,
): Promise<Finding> {
  const check = 'nats-permissions';
  const wanted = permissionsOf(identity, runNames(run));
  const refused = await ask({ ...question, run }, identity, (broker) =>
    refusedSubjects(broker, wanted),
  );
  if ('level' in refused) return refused;
  const name = identityName(identity);
  if (refused.length === 0) return ok(check, `${name} may do what it needs`);
  const others = refused.length === 1 ? '' : ` and ${refused.length - 1} more`;
  return finding(check, 'error', `${name} may not use ${refused[0]!}${others}`, 'keyMayNot');
}

const troubles: Readonly<Record<NatsUnusable['why'], Trouble>> = {
  unreachable: 'natsUnreachable',
  refused: 'natsRefuses',
  'no JetStream': 'noJetStream',
};

/** What `read` returns with a key, or why the server cannot be used with it. */
async function ask<T>(
  { natsUrl, natsKeys, run = 'doctor', log, signal }: NatsQuestion,
  identity: Identity | undefined,
  read: (broker: Awaited<ReturnType<typeof connectBroker>>) => Promise<T>,
): Promise<T | Finding> {
  try {
    await using broker = await connectBroker({
      natsUrl,
      ...(identity !== undefined && { identity, ...accessWith(natsKeys, identity) }),
      run,
      client: 'doctor',
      log,
      signal,
      connectTimeoutMs,
    });
    return await read(broker);
  } catch (caught) {
    if (!(caught instanceof NatsUnusable)) throw caught;
    const who = identity === undefined ? '' : `, with the key of ${identityName(identity)}`;
    const found = `${shownAddress(natsUrl)} ${caught.why}${who}`;
    return finding(
      caught.why === 'no JetStream' ? 'jetstream' : 'nats',
      'error',
      saying(found, caught),
      troubles[caught.why],
    );
  }
}

function saying(found: string, { cause }: NatsUnusable): string {
  return cause === undefined ? found : `${found}: ${errorText(cause)}`;
}

function mib(bytes: number): string {
  return (bytes / 2 ** 20).toFixed(0);
}

interface OwnNatsQuestion {
  readonly env: Environment;
  readonly log: Logger;
  readonly signal: AbortSignal;
  readonly hurry: AbortSignal;
}

/**
 * Starts a server as `npm start` would, in a temporary folder, and checks it with its own keys.
 *
 * @throws {UserError} when OFFBEAT_NATS_SERVER names something unusable.
 */
export async function ownNatsFindings(question: OwnNatsQuestion): Promise<Finding[]> {
  const { env, log, signal, hurry } = question;
  const binary = await findInstalled({ env });
  if (Array.isArray(binary)) {
    return [finding('nats', 'warning', binary.join('; '), 'noNatsServer')];
  }
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
