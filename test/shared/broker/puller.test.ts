import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Link } from '../../../shared/broker/link.js';
import { Puller } from '../../../shared/broker/puller.js';
import { silent } from '../../support/log.js';

describe('a consumer that fetches one message at a time', () => {
  it('a second message for one request, as after a reconnect, is returned to the queue', async () => {
    const stopping = new AbortController();
    const returned: string[] = [];
    const message = (name: string) => ({
      name,
      nak: () => {
        returned.push(name);
      },
    });
    const request = Object.assign([message('first'), message('second')], { stop: () => undefined });
    const consumer = {
      fetch: () => Promise.resolve(request),
      info: () => Promise.resolve({ config: {} }),
    };
    const link = {
      names: { consumer: () => ({ stream: 'TICKETS', durable: 'train' }) },
      js: { consumers: { get: () => Promise.resolve(consumer) } },
      outages: { guard: <T>(work: () => Promise<T>) => work() },
    } as unknown as Link;
    const puller = new Puller(link, 'tickets.train', silent, stopping.signal);
    for await (const got of puller.messages()) {
      assert.equal((got as unknown as { name: string }).name, 'first');
      stopping.abort();
    }
    assert.deepEqual(returned, ['second']);
  });
});
