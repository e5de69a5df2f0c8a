import { createHash, randomUUID } from 'node:crypto';
import { headers } from 'nats';
import { Counter } from 'prom-client';
import { errorText } from '../errors.js';
import { traceHeader } from '../telemetry/tracing.js';
import { largestBody, type Link } from './link.js';
import type { ObjectBucket } from './object-bucket.js';
import { retry } from './retry.js';

const published = new Counter({
  name: 'broker_messages_published_total',
  help: 'Messages that JetStream acknowledged, duplicates included.',
  labelNames: ['queue'],
});
const blockedSeconds = new Counter({
  name: 'broker_publish_blocked_seconds_total',
  help: 'Time that publishers waited, because the stream was full or the server away.',
  labelNames: ['queue', 'reason'],
});

/** Header of a message whose body lies in the object store: the object's name. */
export const bodyHeader = 'Offbeat-Body';

/** The headers of a message that belongs to a trace; none where it does not. */
export function traceHeaders(trace: string | undefined): Readonly<Record<string, string>> {
  return trace === undefined ? {} : { [traceHeader]: trace };
}

export interface Outgoing {
  readonly subject: string;
  readonly data: Uint8Array;
  /** The same id within the stream's window is stored once. */
  readonly msgId: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Stored only if this is the sequence number of the stream's newest message; 0: it never had one. */
  readonly after?: number | undefined;
}

export interface Receipt {
  readonly seq: number; // in the stream
  readonly isDuplicate: boolean; // the stream had it already
}

/**
 * Publishes and returns once JetStream has stored it, however long the stream is full or the server
 * away. A body that the server would refuse for its size goes to `bodies`, and its name instead.
 *
 * @throws {NatsError} a conflict, if the stream's newest message is not the one that `after` names.
 */
export async function publish(
  link: Link,
  bodies: ObjectBucket,
  message: Outgoing,
  signal: AbortSignal,
): Promise<Receipt> {
  const queue = message.subject.split('.')[2] ?? 'other';
  const fields = headers();
  for (const [name, value] of Object.entries(message.headers ?? {})) {
    fields.set(name, headerText(value));
  }
  const isLarge = message.data.byteLength > largestBody(link);
  // A name of its own for each call: the same id may come again with another body.
  const object = isLarge ? `${message.msgId}-${randomUUID()}` : undefined;
  if (object !== undefined) {
    await bodies.put(object, message.data);
    fields.set(bodyHeader, object);
  }
  const data = isLarge ? new Uint8Array() : message.data;

  let attempts = 0;
  const ack = await retry(
    {
      what: `publish to ${message.subject}`,
      log: link.log,
      signal,
      outages: link.outages,
      onWait: (reason, waitedMs) => {
        blockedSeconds.inc({ queue, reason }, waitedMs / 1_000);
      },
    },
    (before) => {
      attempts = before + 1;
      return link.js.publish(message.subject, data, {
        msgID: message.msgId,
        headers: fields,
        ...(message.after !== undefined && { expect: { lastSequence: message.after } }),
      });
    },
  );
  published.inc({ queue });
  // After a lost answer the stored message may be this very one, and then it needs its body.
  if (object !== undefined && ack.duplicate && attempts === 1) {
    try {
      await bodies.delete(object);
    } catch (caught) {
      // An actor may not delete bodies, since they are others' too; this one goes by its age.
      link.log.warn({ object, reason: errorText(caught) }, 'body left behind');
    }
  }
  return { seq: ack.seq, isDuplicate: ack.duplicate };
}

/**
 * A part of a message id for what is sent about another message: the same whenever that is done again, and not to
 * be guessed by who was not given that message. Its number in its stream alone could be.
 */
export function digestOf(original: {
  readonly data: Uint8Array;
  readonly msgId?: string | undefined;
}): string {
  const hash = createHash('sha256')
    .update(`${original.msgId ?? ''}\n`)
    .update(original.data);
  return hash.digest('hex').slice(0, 16);
}

/** One line of at most 1,000 characters, as a header must be. */
function headerText(text: string): string {
  return text.replace(/[\p{Cc}\s]+/gu, ' ').slice(0, 1_000);
}
