import { isDeepStrictEqual } from 'node:util';
import { type ConsumerConfig, type ConsumerInfo, NatsError, type StreamInfo } from 'nats';
import { errorText, UserError } from '../base/errors.js';
import { classify } from './failures.js';
import { ask, askFor, type Link, streamState } from './link.js';
import type { ConsumerSettings, StreamSettings } from './run-layout.js';

/**
 * Creates the stream, or brings an existing one to these settings, and compares them with what the
 * server says it has: a server drops settings that it does not know, in silence.
 *
 * @throws {UserError} if the stream cannot have the settings.
 */
export async function ensureStream(link: Link, settings: StreamSettings): Promise<StreamInfo> {
  const { streams } = link.jsm;
  const { name } = settings;
  let found: StreamInfo | undefined;
  try {
    found = await askFor(link, `look at stream ${name}`, () => streams.info(name));
  } catch (caught) {
    throw notAllowed(name, caught);
  }
  const wanted = found === undefined ? settings : await withoutLoss(link, settings, found);
  if (found !== undefined && differences(wanted, found.config).length === 0) return found;
  try {
    const info = await ask(link, `create stream ${name}`, () =>
      found === undefined ? streams.add(wanted) : streams.update(name, wanted),
    );
    complainOf(link, `stream ${name}`, differences(wanted, info.config));
    return info;
  } catch (caught) {
    throw refused(link, `stream ${name}`, caught);
  }
}

/** The same for a durable consumer. */
export async function ensureConsumer(
  link: Link,
  stream: string,
  settings: ConsumerSettings,
): Promise<ConsumerInfo> {
  const { consumers } = link.jsm;
  const name = settings.durable_name;
  const what = `consumer ${name} of ${stream}`;
  const found = await askFor(link, `look at ${what}`, () => consumers.info(stream, name));
  if (found !== undefined && differences(settings, found.config).length === 0) return found;
  try {
    const info = await ask(link, `create ${what}`, () =>
      // Servers disagree on `add` with changed settings (2.9 updates, later ones refuse).
      found === undefined
        ? consumers.add(stream, settings)
        : consumers.update(stream, name, settings as Partial<ConsumerConfig>),
    );
    complainOf(link, what, differences(settings, info.config));
    return info;
  } catch (caught) {
    throw refused(link, what, caught);
  }
}

/** The settings that came back different, as `max_msgs is 12, not 13`. */
export function differences(asked: object, echoed: object): string[] {
  const given = new Map<string, unknown>(Object.entries(echoed));
  return Object.entries(asked)
    .filter(([key, value]) => !isDeepStrictEqual(given.get(key), value))
    .map(([key, value]) => {
      const shown = given.has(key) ? JSON.stringify(given.get(key)) : 'unknown to the server';
      return `${key} is ${shown}, not ${JSON.stringify(value)}`;
    });
}

/** nats-server 2.9 deletes what a lowered limit no longer covers, so the limits stay above that. */
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

/** The names of a run's streams are in the server's permissions, so a release with another stream needs other ones. */
function notAllowed(name: string, caught: unknown): unknown {
  if (!(caught instanceof NatsError) || !caught.isPermissionError()) return caught;
  return new UserError(
    `NATS does not allow this key to use stream ${name}: the server's configuration is of another release of Offbeat; write it again with \`offbeat nats-config\` (keys that are there stay) and reload the server twice`,
    { cause: caught },
  );
}

function complainOf(link: Link, what: string, wrong: string[]): void {
  if (wrong.length === 0) return;
  const version = link.connection.info?.version ?? 'of unknown version';
  throw new UserError(
    `nats-server ${version} gave ${what} other settings than asked for: ${wrong.join('; ')}; use nats-server 2.9.10 or newer`,
  );
}

function refused(link: Link, what: string, caught: unknown): unknown {
  if (caught instanceof UserError || classify(caught) !== 'other') return caught;
  return new UserError(
    `NATS refused ${what} (${errorText(caught)}); choose another run name than ${link.names.run}, or delete what this server holds of it`,
    { cause: caught },
  );
}
