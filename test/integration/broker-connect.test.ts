import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ErrorCode } from 'nats';
import { accessWith, writeKeys } from '../../cli/nats-server/keys.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { NatsServer } from '../support/nats-server.js';
import { until } from '../support/waiting.js';

const options = {
  run: 'test',
  client: 'test',
  log: silent,
  signal: new AbortController().signal,
  connectTimeoutMs: 200,
};

describe('connecting', { timeout: 60_000 }, () => {
  it('connecting to an address where nothing answers names the address and the remedy', async () => {
    await using server = await NatsServer.start();
    await server.stop();
    await assert.rejects(connectBroker({ ...options, natsUrl: server.url }), {
      name: 'NatsUnusable',
      message: new RegExp(`no NATS server answers at ${server.url} .*nats-server -js.*--nats-url`),
    });
  });

  it('connecting to a server without JetStream reports it', async () => {
    await using server = await NatsServer.start({ jetStream: false });
    await assert.rejects(connectBroker({ ...options, natsUrl: server.url }), {
      name: 'NatsUnusable',
      message: /runs without JetStream; start it with `nats-server -js`[^;]*$/,
    });
  });

  it('connecting asks for a restart of a server that accepts the key but offers no JetStream', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-keys-'));
    const [user] = await writeKeys(folder, 'test', [{ role: 'learner' }]);
    await using server = await NatsServer.start({
      jetStream: false,
      configuration: `authorization { users: [{ nkey: ${user!.publicKey} }] }`,
    });
    const access = accessWith(folder, { role: 'learner' });
    await assert.rejects(connectBroker({ ...options, ...access, natsUrl: server.url }), {
      name: 'NatsUnusable',
      message: /runs without JetStream; .* this key was added while it ran, restart it/,
    });
    await rm(folder, { recursive: true });
  });

  it('connecting names the account if only that lacks JetStream', async () => {
    await using server = await NatsServer.start({
      configuration:
        'accounts { A { jetstream: enabled, users: [{user: a, password: a}] }, B { users: [{user: b, password: b}] } }',
    });
    const as = (user: string) =>
      connectBroker({ ...options, natsUrl: `nats://${user}:${user}@127.0.0.1:${server.port}` });
    await using _there = await as('a');
    await assert.rejects(as('b'), {
      name: 'NatsUnusable',
      message: /offers no JetStream to the account of these credentials; enable it there/,
    });
  });

  it('requests fail once a restarted server refuses the credentials, so that the process ends instead of waiting', async () => {
    const login = (password: string) => `authorization { user: "u", password: "${password}" }`;
    await using server = await NatsServer.start({ configuration: login('right') });
    const natsUrl = `nats://u:right@127.0.0.1:${server.port}`;
    await using broker = await connectBroker({ ...options, natsUrl });
    await broker.ensureRun({ trainTickets: 1, evalTickets: 1 });
    await server.stop();
    await until(() => !broker.isConnected);
    const waiting = broker.policy.current();
    await server.configure(login('wrong'));
    await server.resume();
    await assert.rejects(waiting, { code: ErrorCode.ConnectionClosed });
    await assert.rejects(broker.policy.current(), { code: ErrorCode.ConnectionClosed });
    assert(!broker.isConnected);
  });

  it('more replicas than the server can keep are refused with the flag', async () => {
    await using server = await NatsServer.start();
    await using broker = await brokerOn(server);
    const limits = { trainTickets: 1, evalTickets: 1, replicas: 3 };
    await assert.rejects(broker.ensureRun(limits), {
      name: 'UserError',
      message: /NATS refused stream \w+ .*; lower --stream-replicas, or name a cluster/,
    });
  });

  it('connecting takes the password from the address and never prints it', async () => {
    await using server = await NatsServer.start({
      configuration: 'authorization { user: "u", password: "s3cret" }',
    });
    const withPassword = (password: string) =>
      connectBroker({ ...options, natsUrl: `nats://u:${password}@127.0.0.1:${server.port}` });
    await using broker = await withPassword('s3cret');
    assert(broker.isConnected);
    await assert.rejects(withPassword('wr0ng'), (error: Error) => {
      assert.equal(error.name, 'NatsUnusable');
      assert.match(error.message, /refused the credentials/);
      assert(!error.message.includes('wr0ng'));
      return true;
    });
  });

  it('connecting says how to write a % in a password or a token, and prints neither', async () => {
    await using server = await NatsServer.start({
      configuration: 'authorization { user: "u", password: "100%" }',
    });
    const as = (login: string) =>
      connectBroker({ ...options, natsUrl: `nats://${login}@127.0.0.1:${server.port}` });
    for (const login of ['u:100%', 'u:s3cret%zz', 's3cret%']) {
      await assert.rejects(as(login), {
        name: 'UserError',
        message:
          'the user, password or token in the NATS URL has a % that begins no escape; write % as %25',
      });
    }
    await using broker = await as('u:100%25');
    assert(broker.isConnected);
  });

  it('connecting refuses an invalid server address and an invalid run name', async () => {
    await assert.rejects(connectBroker({ ...options, natsUrl: 'http://localhost:4222' }), {
      name: 'UserError',
      message: /"http:\/\/localhost:4222" is not of the form nats:\/\/host:port/,
    });
    await assert.rejects(connectBroker({ ...options, natsUrl: 'nats://127.0.0.1:1', run: 'a.b' }), {
      name: 'UserError',
      message: /the run is called "a\.b"/,
    });
  });

  it('connecting stops retrying when the signal aborts', async () => {
    await using server = await NatsServer.start();
    await server.stop();
    const stopping = new AbortController();
    const connecting = connectBroker({
      ...options,
      natsUrl: server.url,
      signal: stopping.signal,
      connectTimeoutMs: 60_000,
    });
    stopping.abort(new Error('interrupted'));
    await assert.rejects(connecting);
  });

  it('a connection knows whether the server is reachable', async () => {
    await using server = await NatsServer.start();
    const broker = await brokerOn(server);
    assert.equal(broker.isConnected, true);
    await broker[Symbol.asyncDispose]();
    assert.equal(broker.isConnected, false);
  });
});
