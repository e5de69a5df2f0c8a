import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { QueueRepair } from '../../../shared/broker/queue-repair.js';
import type { Link } from '../../../shared/broker/link.js';
import { runNames, type Source } from '../../../shared/broker/names.js';
import { Outages } from '../../../shared/broker/retry.js';
import { silent } from '../../support/log.js';

interface Queue {
  messages: number;
  lastSeq: number;
  /** Of each consumer that there is. */
  consumers: Readonly<Record<string, { pending: number; ackPending: number }>>;
  /** Published while somebody polls a consumer. */
  arriving?: number;
  /** How many messages lie under subjects of others. */
  strangers?: number;
}

/** A watch over a server of which one queue is as the test says; all others are not there. */
function watchOver(queue: Queue, kind: 'tickets' | 'scored' = 'tickets') {
  const names = runNames('test');
  const elsewhere = names.subjects.rollouts('actor-0');
  const freed: Source[] = [];
  const emptied: number[] = []; // messages each time
  const absent = () => Promise.resolve(undefined);
  const jsm = {
    streams: {
      info: (stream: string) =>
        stream !== names.streams[kind]
          ? absent()
          : Promise.resolve({
              state: {
                ...{ messages: queue.messages, last_seq: queue.lastSeq },
                subjects: {
                  [names.subjects[kind]('train')]: queue.messages - (queue.strangers ?? 0),
                  ...(queue.strangers && { [elsewhere]: queue.strangers }),
                },
              },
            }),
      purge: (_stream: string, options?: { filter: string }) => {
        if (options === undefined) {
          emptied.push(queue.messages);
          queue.messages = 0;
          return Promise.resolve({ success: true });
        }
        assert.equal(options.filter, elsewhere);
        queue.messages -= queue.strangers ?? 0;
        queue.strangers = 0;
        return Promise.resolve({ success: true });
      },
    },
    consumers: {
      info: (_stream: string, durable: string) => {
        const consumer = queue.consumers[durable];
        if (consumer === undefined) return absent();
        const { pending: num_pending, ackPending: num_ack_pending } = consumer;
        queue.messages += queue.arriving ?? 0;
        queue.lastSeq += queue.arriving ?? 0;
        return Promise.resolve({ num_pending, num_ack_pending });
      },
    },
  };
  const { signal } = new AbortController();
  const link = { names, jsm, log: silent, signal, outages: new Outages() } as unknown as Link;
  const watch = new QueueRepair(link, (source) => {
    freed.push(source);
    return Promise.resolve();
  });
  return { watch, freed, emptied };
}

const none = { pending: 0, ackPending: 0 };

describe('messages that a killed server keeps although they were acknowledged', () => {
  it('ghosts are the messages beyond the pending and unacknowledged ones, if two checks find them', async () => {
    // Eight of them, while somebody works on two others and three wait.
    const consumers = { 'actors-train': { pending: 3, ackPending: 2 }, 'actors-eval': none };
    const { watch, freed } = watchOver({ messages: 13, lastSeq: 146, consumers });
    await watch.poll();
    assert.deepEqual(freed, []);
    await watch.poll();
    assert.deepEqual(freed, ['tickets.train', 'tickets.eval']);
    await watch.poll(); // counted anew
    assert.equal(freed.length, 2);
  });

  it('ghosts are deleted together with their queue if the server does not deliver them again either', async () => {
    const consumers = { 'learner-train': none, 'learner-eval': none };
    const queue = { messages: 15, lastSeq: 70, consumers };
    const { watch, freed, emptied } = watchOver(queue, 'scored');
    for (let polls = 0; polls < 3; polls++) await watch.poll();
    assert.deepEqual([freed.length, emptied], [2, []]);
    await watch.poll();
    assert.deepEqual([freed.length, emptied], [2, [15]]);
    await watch.poll();
    queue.messages = 1; // again, after the queue was in order
    for (let polls = 0; polls < 2; polls++) await watch.poll();
    assert.deepEqual([freed.length, emptied], [4, [15]]);
  });

  it('ghosts are also found among scored groups that a checkpoint has settled', async () => {
    const consumers = { 'learner-train': { pending: 0, ackPending: 4 }, 'learner-eval': none };
    const { watch, freed } = watchOver({ messages: 7, lastSeq: 146, consumers }, 'scored');
    await watch.poll();
    await watch.poll();
    assert.deepEqual(freed, ['scored.train', 'scored.eval']);
  });

  it('no ghosts are found if either consumer accounts for every message', async () => {
    const consumers = {
      'actors-train': { pending: 3, ackPending: 2 },
      'actors-eval': { pending: 0, ackPending: 1 },
    };
    const { watch, freed } = watchOver({ messages: 6, lastSeq: 146, consumers });
    for (let polls = 0; polls < 3; polls++) await watch.poll();
    assert.deepEqual(freed, []);
  });

  it('a message whose acknowledgement is still taking effect is not a ghost', async () => {
    const consumers = { 'actors-train': none, 'actors-eval': none };
    const queue = { messages: 1, lastSeq: 146, consumers };
    const { watch, freed } = watchOver(queue);
    for (let polls = 0; polls < 4; polls++) {
      queue.messages = polls % 2 === 0 ? 1 : 0;
      await watch.poll();
    }
    assert.deepEqual(freed, []);
  });

  it('a message that is published during a check is not a ghost', async () => {
    const consumers = { 'actors-train': none, 'actors-eval': none };
    const queue = { messages: 0, lastSeq: 146, consumers, arriving: 2 };
    const { watch, freed } = watchOver(queue);
    for (let polls = 0; polls < 3; polls++) {
      queue.messages = 0; // those of the last poll have been taken and acknowledged
      await watch.poll();
    }
    assert.deepEqual(freed, []);
  });

  it('no ghosts are counted while a consumer is missing, since its messages are not delivered', async () => {
    const consumers = { 'actors-train': none };
    const { watch, freed } = watchOver({ messages: 5, lastSeq: 146, consumers });
    for (let polls = 0; polls < 3; polls++) await watch.poll();
    assert.deepEqual(freed, []);
  });

  it('messages published by others are not ghosts and are deleted', async () => {
    const consumers = { 'actors-train': { pending: 3, ackPending: 0 }, 'actors-eval': none };
    const queue = { messages: 8, lastSeq: 146, consumers, strangers: 3 };
    const { watch, freed } = watchOver(queue);
    await watch.poll();
    assert.equal(queue.messages, 8);
    await watch.poll();
    assert.deepEqual([queue.messages, queue.strangers], [5, 0]);
    assert.deepEqual(freed, []); // the other two may be ghosts: two more polls
    await watch.poll();
    await watch.poll();
    assert.deepEqual(freed, ['tickets.train', 'tickets.eval']);
  });

  it('concurrent checks for ghosts count as one', async () => {
    const consumers = { 'actors-train': none, 'actors-eval': none };
    const { watch, freed } = watchOver({ messages: 5, lastSeq: 146, consumers });
    await Promise.all([watch.poll(), watch.poll()]);
    assert.deepEqual(freed, []);
  });
});
