import { createHash, randomUUID } from 'node:crypto';
import { headers } from 'nats';
import { Counter } from 'prom-client';
import { errorText } from '../base/errors.js';
import { traceHeader } from '../service/telemetry/tracing.js';
import { largestBody, type Link } from './link.js';
import { isPublishedTo } from './names.js';
import type { ObjectBucket } from './object-bucket.js';
import { countBlocked, retry } from './retry.js';
import { uploadHeader, type Uploads } from './uploads.js';

const published = new Counter({
  name: 'broker_messages_published_total',
  help: 'Messages that JetStream acknowledged, including duplicates.',
  labelNames: ['queue'],
});

/** Header of a message whose body is in the object store: the object's name. */
export const bodyHeader = 'Offbeat-Body';

/** Returns the trace header of a message; no header without a trace. */
export function traceHeaders(trace: string | undefined): Readonly<Record<string, string>> {
  return trace === undefined ? {} : { [traceHeader]: trace };
}

interface Outgoing {
  readonly subject: string;
  readonly data: Uint8Array;
  /** The stream stores the same id only once within its duplicate window. */
  readonly msgId: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Stored only if this is the sequence number of the stream's newest message; 0 for an empty stream. */
  readonly after?: number | undefined;
}

export interface Receipt {
  readonly seq: number; // in the stream
  readonly isDuplicate: boolean; // the stream already had it
}

/** Stores for bodies that are too large for a message. */
export interface BodyStores {
  readonly bodies: ObjectBucket; // of the learner and the reward service
  readonly uploads: Uploads; // of actors
}

/**
 * Publishes a message and resolves once JetStream has stored it, however long the stream is full or the
 * server unreachable. A body above the server's size limit is stored first, and the message refers to it.
 *
 * @throws {NatsError} a conflict, if `after` is not the stream's newest message.
 */
export async function publish(
  link: Link,
  { bodies, uploads }: BodyStores,
  message: Outgoing,
  signal: AbortSignal,
): Promise<Receipt> {
  const queue = message.subject.split('.')[2] ?? 'other'; // offbeat.RUN.QUEUE
  const fields = headers();
  for (const [name, value] of Object.entries(message.headers ?? {})) {
    fields.set(name, headerText(value));
  }
  const isLarge = message.data.byteLength > largestBody(link);
  // A new name for each call: the same id may be published again with another body.
  const isUpload = isLarge && isPublishedTo(link.names, 'rollouts', message.subject);
  const object = isLarge && !isUpload ? `${message.msgId}-${randomUUID()}` : undefined;
  let { data } = message;
  if (isUpload) {
    data = await uploads.put(link.names.uploadsOf(message.subject), data, signal);
    fields.set(uploadHeader, '1');
  } else if (object !== undefined) {
    await bodies.put(object, data);
    fields.set(bodyHeader, object);
    data = new Uint8Array();
  }

  let attempts = 0;
  const ack = await retry(
    {
      what: `publish to ${message.subject}`,
      log: link.log,
      signal,
      outages: link.outages,
      onWait: countBlocked(queue),
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
  // If an answer was lost, the duplicate may be this very message, which needs its body.
  if (object !== undefined && ack.duplicate && attempts === 1) {
    try {
      await bodies.delete(object);
    } catch (caught) {
      link.log.warn({ object, reason: errorText(caught) }, 'body not deleted'); // the sweep deletes it
    }
  }
  return { seq: ack.seq, isDuplicate: ack.duplicate };
}

/**
 * Returns a part of the id for a message about another message: stable across repetitions, and not guessable
 * without that message, as its sequence number alone would be.
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

/** Bytes of a header, so that all headers of a dead letter fit into what `largestBody` leaves for them. */
const longestHeader = 600;

/** Makes a text valid as a header: one line of at most `longestHeader` bytes. */
function headerText(text: string): string {
  const line = text.replace(/[\p{Cc}\s]+/gu, ' ');
  const bytes = Buffer.from(line);
  if (bytes.byteLength <= longestHeader) return line;
  return bytes.toString('utf8', 0, longestHeader).replace(/\ufffd+$/, ''); // without half a character
}
