import { headers, type StoredMsg, type StreamState } from 'nats';
import { classify, isNotAllowed } from './failures.js';
import { ask, askFor, type Link } from './link.js';
import { stored } from './tail.js';

/**
 * Moves a stream past sequence numbers whose messages the server would hide.
 *
 * When the end of a stream's file is missing at the start of nats-server 2.9.10, it gives the numbers of the lost
 * messages again. But it still goes by an index from before: a new message is acknowledged, and shown to no reader
 * if its number is that of a deleted message, or below that of the first message that there was. Such a stream is
 * emptied up to the last number that was lost, so that the next message gets a new one.
 *
 * @param isKept whether what can still be read is stored again. Otherwise it is lost, as what the file has lost:
 *   the learner issues other tickets and publishes its policy again, and actors renew their leases.
 */
export async function skipHiddenNumbers(
  link: Link,
  stream: string,
  isKept: boolean,
): Promise<void> {
  const { jsm, log } = link;
  const info = await askFor(link, `look into ${stream}`, () =>
    jsm.streams.info(stream, { deleted_details: true }),
  );
  if (info === undefined) return;
  const { last_seq: last, messages } = info.state;
  const upTo = lastKnown(info.state);
  if (upTo <= last) return;

  const readable: StoredMsg[] = [];
  if (isKept) {
    const [everything] = info.config.subjects;
    if (everything === undefined) return;
    for await (const message of stored(link, stream, everything, link.signal)) {
      readable.push(message);
    }
    link.signal.throwIfAborted(); // what was read so far is not all
  }
  const kept = readable.length;
  log.warn(
    { stream, last, upTo, messages, kept },
    'the end of a stream is lost, and the server would hide what comes next: it starts after that',
  );
  try {
    await ask(link, `empty ${stream}`, () => jsm.streams.purge(stream, { seq: upTo + 1 }));
  } catch (caught) {
    if (!isNotAllowed(caught)) throw caught;
    log.warn({ stream }, remedyOfMissingRight);
    return;
  }
  await storeAgain(link, stream, readable);
}

/** The last sequence number that the server's index tells of, whether its message is there or not. */
function lastKnown(state: StreamState): number {
  const { deleted = [], lost } = state as Partial<StreamState>; // left out where there is none
  return [...deleted, ...(lost?.msgs ?? [])].reduce(
    (last, seq) => Math.max(last, seq),
    state.first_seq - 1,
  );
}

/** What helps where the server's configuration was made by an older release. */
export const remedyOfMissingRight =
  'the NATS server does not let the learner empty a stream: run `offbeat nats-config` again and reload it';

/** In their order, each only if nobody has written to its subject meanwhile: that is newer. */
async function storeAgain(
  link: Link,
  stream: string,
  messages: readonly StoredMsg[],
): Promise<void> {
  const newest = new Map<string, number>(); // sequence number, by subject
  for (const { subject, data } of messages) {
    const expected = headers();
    expected.set('Nats-Expected-Last-Subject-Sequence', String(newest.get(subject) ?? 0));
    try {
      const { seq } = await ask(link, `store ${subject} in ${stream} again`, () =>
        link.js.publish(subject, data, { headers: expected }),
      );
      newest.set(subject, seq);
    } catch (caught) {
      if (classify(caught) !== 'conflict') throw caught;
    }
  }
}
