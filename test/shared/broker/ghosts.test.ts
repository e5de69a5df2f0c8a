import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { hasGhosts } from '../../../shared/broker/ghosts.js';
import type { Link } from '../../../shared/broker/link.js';
import { runNames } from '../../../shared/broker/names.js';
import { Outages } from '../../../shared/broker/outages.js';
import { silent } from '../../support/broker.js';

interface State {
  readonly floor: number;
  readonly delivered: number;
  readonly ackPending: number;
  readonly first?: number; // the oldest message of the queue
}

function look({ floor, delivered, ackPending, first }: State): Promise<boolean> {
  const names = runNames('test');
  const info = {
    num_ack_pending: ackPending,
    ack_floor: { stream_seq: floor },
    delivered: { stream_seq: delivered },
  };
  const jsm = {
    consumers: { info: () => Promise.resolve(info) },
    streams: {
      getMessage: () => Promise.resolve(first === undefined ? undefined : { seq: first }),
    },
  };
  const { signal } = new AbortController();
  const link = { names, jsm, log: silent, signal, outages: new Outages() } as unknown as Link;
  return hasGhosts(link, names.consumer('tickets.train'));
}

describe('messages that a killed server keeps although they were acknowledged', () => {
  it('lie below the floor of what is acknowledged', async () => {
    assert.equal(await look({ floor: 8, delivered: 9, ackPending: 1, first: 3 }), true);
  });

  it('were delivered, and nothing waits for its acknowledgement', async () => {
    // As nats-server 2.9.10 came back from a kill: its floor was behind.
    assert.equal(await look({ floor: 132, delivered: 146, ackPending: 0, first: 139 }), true);
  });

  it('are not those that somebody works on, or that nobody has seen yet', async () => {
    assert.equal(await look({ floor: 132, delivered: 146, ackPending: 8, first: 139 }), false);
    assert.equal(await look({ floor: 146, delivered: 146, ackPending: 0, first: 147 }), false);
    assert.equal(await look({ floor: 0, delivered: 0, ackPending: 0, first: 1 }), false);
    assert.equal(await look({ floor: 146, delivered: 146, ackPending: 0 }), false);
  });
});
