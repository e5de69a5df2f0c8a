import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type ConnectionOptions, ErrorCode, type NatsConnection, NatsError } from 'nats';
import { errorText, UserError } from '../base/errors.js';
import type { Logger } from '../service/telemetry/logger.js';
import { credentials, type NatsAccess } from './access.js';
import { Broker } from './broker.js';
import { classify } from './failures.js';
import type { Link } from './link.js';
import { runNames, type Source } from './names.js';
import { Outages } from './retry.js';
import { type Identity, inboxPrefix } from './permissions.js';

export interface BrokerOptions extends NatsAccess {
  /** `nats://host:port`, with `user:password@` or `token@` where the server asks for one. */
  readonly natsUrl: string;
  readonly run: string;
  /** Client name in the server's connection list: `actor-0`. */
  readonly client: string;
  /** Identity under the server's permissions, which names the inbox; absent where the server has no permissions. */
  readonly identity?: Identity;
  readonly log: Logger;
  readonly signal: AbortSignal;
  /** Overrides how long a message may stay unacknowledged, in milliseconds, if this process creates the run. */
  readonly ackWaitMs?: Partial<Readonly<Record<Source, number>>>;
  /** How long the first connection may take, in milliseconds. Reconnects are tried without a limit. */
  readonly connectTimeoutMs?: number;
}

/** The NATS server cannot be used; `why` says which way. */
export class NatsUnusable extends UserError {
  override readonly name = 'NatsUnusable';

  constructor(
    readonly why: 'refused' | 'unreachable' | 'no JetStream',
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * Connects to the run's NATS server and checks that JetStream is on.
 *
 * @throws {NatsUnusable} if nothing answers within `connectTimeoutMs` (10 s by default), the server refuses the
 *   credentials, or JetStream is off.
 * @throws {UserError} if the address or a credentials file is invalid.
 */
export async function connectBroker(options: BrokerOptions): Promise<Broker> {
  const { log, signal } = options;
  const names = runNames(options.run);
  const connection = await dial(options, await connectionOptions(options));
  try {
    const jsm = await reachJetStream(connection, options);
    const js = connection.jetstream();
    const link: Link = { connection, js, jsm, names, log, outages: new Outages(), signal };
    const { identity } = options;
    const actor = identity?.role === 'actor' ? identity.actor : undefined;
    return new Broker(link, options.ackWaitMs ?? {}, actor);
  } catch (caught) {
    await connection.close();
    throw caught;
  }
}

/** The address without its credentials, for messages. */
export function shownAddress(natsUrl: string): string {
  const url = parseAddress(natsUrl);
  return `${url.protocol}//${url.host}`;
}

async function dial(options: BrokerOptions, how: ConnectionOptions): Promise<NatsConnection> {
  const { natsUrl, log, signal } = options;
  const address = shownAddress(natsUrl);
  const startedAt = performance.now();
  const timeoutMs = options.connectTimeoutMs ?? 10_000;
  for (let attempt = 1; ; attempt++) {
    signal.throwIfAborted();
    try {
      return await connect(how);
    } catch (caught) {
      if (caught instanceof NatsError && (caught.isAuthError() || caught.isPermissionError())) {
        throw new NatsUnusable(
          'refused',
          `NATS at ${address} refused the credentials (${errorText(caught)}); give them as --nats-nkey-seed-file, --nats-creds-file or nats://user:password@host:port`,
          { cause: caught },
        );
      }
      if (performance.now() - startedAt > timeoutMs) {
        throw new NatsUnusable(
          'unreachable',
          `no NATS server answers at ${address} (${errorText(caught)}); start one with \`nats-server -js\`, or name another with --nats-url`,
          { cause: caught },
        );
      }
      log.warn({ natsUrl: address, attempt, reason: errorText(caught) }, 'waiting for NATS');
      await sleep(Math.min(250 * attempt, 1_000), undefined, { signal });
    }
  }
}

async function connectionOptions(options: BrokerOptions): Promise<ConnectionOptions> {
  const { natsUrl, run, client, identity } = options;
  const { protocol, host, username, password } = parseAddress(natsUrl);
  const [user, pass] = [decoded(username), decoded(password)];
  return {
    servers: host,
    ...(protocol === 'tls:' ? { tls: {} } : {}),
    ...(await credentials(options)),
    ...(identity === undefined ? {} : { inboxPrefix: inboxPrefix(identity) }),
    name: `offbeat/${run}/${client}`,
    ...(pass !== '' ? { user, pass } : user !== '' ? { token: user } : {}),
    timeout: 5_000,
    noAsyncTraces: true, // a stack trace for every request costs more than encoding it
    maxReconnectAttempts: -1, // reconnects even after an hour
    reconnectTimeWait: 250,
    reconnectJitter: 250,
    pingInterval: 10_000, // detects a dead peer within 30 s, also on a silent network
  };
}

/** Waits for JetStream: a server that has just started answers before JetStream does, and 503 may mean either. */
async function reachJetStream(connection: NatsConnection, options: BrokerOptions) {
  const { natsUrl, log, signal, connectTimeoutMs = 10_000 } = options; // a request waits up to 5 s
  const startedAt = performance.now();
  for (;;) {
    try {
      return await connection.jetstreamManager();
    } catch (caught) {
      if (classify(caught) !== 'away') throw caught;
      if (performance.now() - startedAt > connectTimeoutMs) {
        throw new NatsUnusable(
          'no JetStream',
          `NATS at ${shownAddress(natsUrl)} ${withoutJetStream(connection, caught)}${ofNewAccount(options)}`,
          { cause: caught },
        );
      }
      log.warn({ reason: errorText(caught) }, 'waiting for JetStream');
      await sleep(250, undefined, { signal });
    }
  }
}

/** A server started with JetStream keeps announcing it, even after switching it off, and to accounts that lack it. */
function withoutJetStream({ info }: NatsConnection, caught: unknown): string {
  const { code, api_error: error } = (caught instanceof NatsError ? caught : undefined) ?? {};
  if (code === (ErrorCode.Timeout as string)) {
    return 'accepts connections and does not answer; see its log, and whether its disk is full or its machine overloaded';
  }
  if (error?.err_code === notForAccount) {
    return 'offers no JetStream to the account of these credentials; enable it there (`jetstream: enabled`), or use another account';
  }
  return info?.jetstream === true
    ? 'has JetStream in its configuration and does not offer it now; a server whose disk is full switches it off ("JetStream out of resources, will be DISABLED" in its log): make room and restart it'
    : 'runs without JetStream; start it with `nats-server -js`, or add `jetstream {}` to its configuration';
}

/** JSNotEnabledForAccountErr of nats-server. */
const notForAccount = 10_039;

/** Hint for an account that a reload added: that reload does not give it JetStream. */
function ofNewAccount({ natsNkeySeedFile }: NatsAccess): string {
  return natsNkeySeedFile === undefined
    ? ''
    : '; if it has, and this key was added while it ran, restart it';
}

function parseAddress(natsUrl: string): URL {
  const url = URL.canParse(natsUrl) ? new URL(natsUrl) : undefined;
  if (url === undefined || !['nats:', 'tls:'].includes(url.protocol) || url.hostname === '') {
    // The message shows only a part: the URL may hold a password.
    throw new UserError(
      `the NATS URL ${JSON.stringify(natsUrl.replace(/\/\/.*@/, '//…@'))} is not of the form nats://host:port`,
    );
  }
  return url;
}

/** A part of an address without its escapes. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    // The message shows nothing of the part: it is a password, or a token.
    throw new UserError(
      'the user, password or token in the NATS URL has a % that begins no escape; write % as %25',
    );
  }
}
