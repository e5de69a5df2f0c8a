import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Events, type NatsConnection } from 'nats';
import { followConnection } from '../../../shared/broker/connection-watch.js';
import { Outages } from '../../../shared/broker/retry.js';
import type { Logger } from '../../../shared/service/telemetry/logger.js';

describe('the watch over a connection', () => {
  it('an outage in which the server refuses several attempts ends once, and is logged once', async () => {
    const said: string[] = [];
    const log = {
      warn: (line: string) => said.push(line),
      info: (line: string) => said.push(line),
    };
    // nats.js has one more of each for every attempt that was refused.
    async function* status() {
      for (const type of [Events.Disconnect, Events.Disconnect, Events.Reconnect, Events.Reconnect])
        yield await Promise.resolve({ type, data: '' });
      over();
    }
    let over = (): void => undefined;
    const ended = new Promise<void>((resolve) => (over = resolve));
    const connection = {
      ...{ status, isDraining: () => false, isClosed: () => false },
      closed: () => new Promise(() => undefined),
    } as unknown as NatsConnection;
    const outages = new Outages();
    let restored = 0;
    followConnection({ connection, log: log as unknown as Logger, outages }, () => restored++);
    await ended;
    assert.deepEqual(said, ['NATS connection lost', 'NATS connection restored']);
    assert.deepEqual([restored, outages.isDown], [1, false]);
  });
});
