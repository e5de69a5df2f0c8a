import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { readBacklog } from '../../../shared/broker/backlog.js';
import type { Link } from '../../../shared/broker/link.js';
import { runNames } from '../../../shared/broker/names.js';
import { Outages } from '../../../shared/broker/retry.js';
import { silent } from '../../support/log.js';
import { never } from '../../support/waiting.js';

const hour = 3_600_000;

/** The age of the oldest of two messages, stored at 0 s and at 5 s of a server's clock that differs from ours. */
async function oldestAge(serverAheadMs: number, serverSaysTime: boolean): Promise<number> {
  const start = Date.now() + serverAheadMs;
  const time = (seconds: number) => new Date(start + 1_000 * seconds).toISOString();
  const state = { messages: 2, first_ts: time(0), last_ts: time(5), last_seq: 2 };
  const info = { state, ...(serverSaysTime && { ts: time(7) }) };
  const jsm = {
    streams: { info: () => Promise.resolve(info) },
    consumers: { info: () => Promise.resolve(undefined) },
  };
  const link: unknown = {
    ...{ jsm, names: runNames('test'), outages: new Outages(), log: silent, signal: never },
  };
  return (await readBacklog(link as Link)).streams.tickets.oldestAgeSeconds;
}

describe('the age of the oldest message in a queue', () => {
  it('the age of the oldest message is by the clock of the server', async () => {
    for (const ahead of [-hour, hour]) assert.equal(await oldestAge(ahead, true), 7);
  });

  it('the age of the oldest message is at least the time between it and the newest one if the server does not say what time it is', async () => {
    assert.equal(await oldestAge(hour, false), 5);
    assert((await oldestAge(-5_000, false)) >= 5);
  });
});
