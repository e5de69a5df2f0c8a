import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { accessWith, writeKeys } from '../../cli/nats-server/keys.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { NatsServer } from '../support/nats-server.js';

const options = {
  run: 'test',
  client: 'test',
  log: silent,
  signal: new AbortController().signal,
  connectTimeoutMs: 200,
};

describe('connecting', { timeout: 30_000 }, () => {
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
