import { isDeepStrictEqual } from 'node:util';
import { type ConsumerConfig, type ConsumerInfo, NatsError, type StreamInfo } from 'nats';
import { errorText, UserError } from '../base/errors.js';
import { classify } from './failures.js';
import { ask, askFor, type Link, streamState } from './link.js';
import type { ConsumerSettings, StreamSettings } from './run-layout.js';

/**
 * Creates or updates the stream and compares the settings that the server reports with those requested: a
 * server silently drops settings that it does not know.
 *
 * @param options.onlyCreates whether a stream that exists stays as it is.
 * @throws {UserError} if the stream cannot have the settings.
 */
export async function ensureStream(
  link: Link,
  settings: StreamSettings,
  { onlyCreates = false } = {},
): Promise<StreamInfo> {
  const { streams } = link.jsm;
  const { name } = settings;
  let found: StreamInfo | undefined;
  try {
    found = await askFor(link, `read the state of stream ${name}`, () => streams.info(name));
  } catch (caught) {
    throw notAllowed(name, caught);
  }
  if (found !== undefined && onlyCreates) return found;
  const wanted = found === undefined ? settings : await withoutLoss(link, settings, found);
  if (found !== undefined && differences(wanted, found.config).length === 0) return found;
  try {
    const info = await ask(link, `create stream ${name}`, () =>
      found === undefined ? streams.add(wanted) : streams.update(name, wanted),
    );
    requireNoDifferences(link, `stream ${name}`, differences(wanted, info.config));
    return info;
  } catch (caught) {
    // Another learner of the run may have created it meanwhile: two that start together look for it at the same time.
    const look = () => askFor(link, `read the state of stream ${name}`, () => streams.info(name));
    if (found === undefined && (await look()) !== undefined)
      return await ensureStream(link, settings, { onlyCreates });
    throw refused(link, `stream ${name}`, caught);
  }
}

/** Creates or updates a durable consumer in the same way. */
export async function ensureConsumer(
  link: Link,
  stream: string,
  settings: ConsumerSettings,
): Promise<ConsumerInfo> {
  const { consumers } = link.jsm;
  const name = settings.durable_name;
  const what = `consumer ${name} of ${stream}`;
  const found = await askFor(link, `read the state of ${what}`, () => consumers.info(stream, name));
  if (found !== undefined && differences(settings, found.config).length === 0) return found;
  try {
    const info = await ask(link, `create ${what}`, () =>
      // Servers disagree on `add` with changed settings (2.9 updates, later ones refuse).
      found === undefined
        ? consumers.add(stream, settings)
        : consumers.update(stream, name, settings as Partial<ConsumerConfig>),
    );
    requireNoDifferences(link, what, differences(settings, info.config));
    return info;
  } catch (caught) {
    throw refused(link, what, caught);
  }
}

/**
 * Deletes a consumer unless there is none.
 *
 * nats-server 2.9.10 forgets a consumer before it deletes its folder. If it writes the consumer's state there at the
 * same moment, it reports `directory not empty`. The consumer is gone then, but the next of its name may begin with
 * that state.
 *
 * @returns whether nothing of it is left.
 */
export async function deleteConsumer(
  link: Link,
  stream: string,
  durable: string,
): Promise<boolean> {
  const { consumers } = link.jsm;
  const what = `consumer ${durable} of ${stream}`;
  try {
    await askFor(link, `delete ${what}`, () => consumers.delete(stream, durable));
    return true;
  } catch (caught) {
    const found = await askFor(link, `look for ${what}`, () => consumers.info(stream, durable));
    if (found !== undefined) throw caught;
    return false;
  }
}

/** Lists the settings that the server reports differently, as `max_msgs is 12, not 13`. */
export function differences(asked: object, echoed: object): string[] {
  const given = new Map<string, unknown>(Object.entries(echoed));
  return Object.entries(asked)
    .filter(([key, value]) => !isDeepStrictEqual(given.get(key), value))
    .map(([key, value]) => {
      const shown = given.has(key) ? JSON.stringify(given.get(key)) : 'unknown to the server';
      return `${key} is ${shown}, not ${JSON.stringify(value)}`;
    });
}

/** Keeps the limits above the stored messages: nats-server 2.9 deletes messages beyond a lowered limit. */
async function withoutLoss(
  link: Link,
  settings: StreamSettings,
  found: StreamInfo,
): Promise<StreamSettings> {
  const { messages } = found.state;
  const max_msgs = Math.max(settings.max_msgs, messages);
  const share = settings.max_msgs_per_subject;
  const before = found.config.max_msgs_per_subject;
  const isLowered = share !== undefined && (before <= 0 || before > share) && messages > share;
  if (!isLowered) return { ...settings, max_msgs };
  const state = await streamState(link, settings.name, '>');
  const largest = Math.max(share, ...Object.values(state?.subjects ?? {}));
  return { ...settings, max_msgs, max_msgs_per_subject: largest };
}

/** The server's permissions name the streams of a run, so a release that adds a stream needs new permissions. */
function notAllowed(name: string, caught: unknown): unknown {
  if (!(caught instanceof NatsError) || !caught.isPermissionError()) return caught;
  return new UserError(
    `NATS does not allow this key to use stream ${name}: the server's configuration was written by another release of Offbeat; write it again with \`offbeat nats-config\` (existing keys stay) and restart the server`,
    { cause: caught },
  );
}

function requireNoDifferences(link: Link, what: string, wrong: string[]): void {
  if (wrong.length === 0) return;
  const version = link.connection.info?.version ?? 'of unknown version';
  throw new UserError(
    `nats-server ${version} gave ${what} other settings than requested: ${wrong.join('; ')}; use nats-server 2.9.10 or newer`,
  );
}

/** nats-server's errors for replicas that it has no servers for: no suitable peers, not clustered. */
const tooFewServers = new Set([10_005, 10_074]);

function refused(link: Link, what: string, caught: unknown): unknown {
  if (caught instanceof UserError || classify(caught) !== 'other') return caught;
  const errorCode = caught instanceof NatsError ? caught.api_error?.err_code : undefined;
  if (errorCode !== undefined && tooFewServers.has(errorCode)) {
    return new UserError(
      `NATS refused ${what} (${errorText(caught)}); lower --stream-replicas, or name a cluster of at least as many servers`,
      { cause: caught },
    );
  }
  return new UserError(
    `NATS refused ${what} (${errorText(caught)}); choose another run name than ${link.names.run}, or delete that run from this server`,
    { cause: caught },
  );
}
