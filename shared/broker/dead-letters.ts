import { randomUUID } from 'node:crypto';
import { Counter } from 'prom-client';
import type { StoredMsg } from 'nats';
import type { Link } from './link.js';
import type { ObjectBucket } from './object-bucket.js';
import { bodyHeader, publish } from './publish.js';
import { tail } from './tail.js';

const deadLettered = new Counter({
  name: 'broker_messages_dead_lettered_total',
  help: 'Messages that could not be processed and were put aside with a reason.',
  labelNames: ['stage'],
});

/** A message that could not be processed. */
export interface DeadLetter {
  readonly seq: number; // in the dead-letter stream
  readonly stage: string; // who gave it up: actor, reward, learner
  readonly reason: string;
  readonly subject: string; // where it was published first
  readonly msgId: string | undefined; // that it was published with, when known
  readonly data: Uint8Array; // as it was
  readonly at: number; // ms since the epoch
}

/** What is known of a message that is given up. */
export interface Original {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly msgId?: string;
}

const fields = {
  stage: 'Offbeat-Stage',
  reason: 'Offbeat-Reason',
  subject: 'Offbeat-Subject',
  msgId: 'Offbeat-Msg-Id',
} as const;

/** The messages of a run that could not be processed, kept for people and for the books. */
export class DeadLetters {
  readonly #link: Link;
  readonly #bodies: ObjectBucket;

  constructor(link: Link, bodies: ObjectBucket) {
    this.#link = link;
    this.#bodies = bodies;
  }

  /** @param id of this death: the same one is stored once, however often it is reported. */
  async store(
    stage: string,
    reason: string,
    original: Original,
    id: string = randomUUID(),
  ): Promise<void> {
    const { subject, data, msgId } = original;
    const headers = {
      [fields.stage]: stage,
      [fields.reason]: reason,
      [fields.subject]: subject,
      ...(msgId === undefined ? {} : { [fields.msgId]: msgId }),
    };
    const { isDuplicate } = await publish(
      this.#link,
      this.#bodies,
      { subject: this.#link.names.subjects.dead(stage), data, msgId: `dead-${id}`, headers },
      this.#link.signal,
    );
    if (isDuplicate) return;
    deadLettered.inc({ stage });
    this.#link.log.warn({ stage, subject, msgId, reason }, 'message given up');
  }

  /** Every dead letter from the first, then each new one, until the signal aborts. */
  async *read(signal: AbortSignal): AsyncGenerator<DeadLetter, void, undefined> {
    const { streams, subjects } = this.#link.names;
    const everything = subjects.dead('x').replace(/x$/, '*');
    for await (const message of tail(this.#link, streams.dead, everything, signal)) {
      const header = (name: string) => message.header.get(name);
      yield {
        seq: message.seq,
        stage: header(fields.stage),
        reason: header(fields.reason),
        subject: header(fields.subject),
        msgId: header(fields.msgId) || undefined,
        data: await this.#body(message),
        at: message.time.getTime(),
      };
    }
  }

  async #body(message: StoredMsg): Promise<Uint8Array> {
    const object = message.header.get(bodyHeader);
    return object === '' ? message.data : ((await this.#bodies.get(object)) ?? message.data);
  }
}
