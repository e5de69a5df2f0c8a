import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { freePort } from '../../deploy/local/processes/free-port.js';
import { streamSettings } from '../../shared/broker/run-layout.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { brokerOn, until } from '../support/broker.js';
import { ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';

const limits = { trainTickets: 8, evalTickets: 8, replicas: 3 };

describe('a run on a cluster of three NATS servers', { timeout: 120_000 }, () => {
  it('keeps each stream on all of them, and goes on when one dies', async () => {
    const ports = [await freePort(), await freePort(), await freePort()];
    const routes = ports.map((port) => `nats-route://127.0.0.1:${port}`);
    const [first, second, third] = await Promise.all(
      ports.map((port, i) =>
        NatsServer.start({
          configuration: `server_name: n${i}
cluster { name: test, listen: "127.0.0.1:${port}", routes: ${JSON.stringify(routes)} }`,
        }),
      ),
    );
    await using one = first!;
    await using _two = second!;
    await using _three = third!;

    await using broker = await brokerOn(one, { connectTimeoutMs: 30_000 });
    await broker.ensureRun(limits);
    const { streams } = broker.link.jsm;
    for (const { name } of streamSettings(broker.names, limits)) {
      const { config, cluster } = await streams.info(name);
      assert.equal(config.num_replicas, 3);
      assert.equal(cluster?.replicas?.length, 2);
    }

    const { signal } = new AbortController();
    const publish = (msgId: string) =>
      broker.publish(broker.names.subjects.tickets('train'), Ticket, ticket(), { msgId, signal });
    await publish('before');
    await one.stop('SIGKILL'); // the one that the client is connected to
    await publish('after'); // waits for another
    await until(async () => (await broker.depths()).tickets === 2);
  });
});
