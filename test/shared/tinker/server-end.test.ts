import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { RunLost } from '../../../shared/tinker/errors.js';
import { FaultyNetwork } from './faulty-network.js';
import { connectTo, ScriptedServer } from './scripted-server.js';
import { adam, StrictRun } from './strict-run.js';

/** A client of a scripted server, over a network that fails when the test says so. */
async function connected() {
  const server = await ScriptedServer.start();
  const network = new FaultyNetwork();
  const { client } = await connectTo(server, { fetch: network.fetch });
  return {
    ...{ server, network, client, strict: new StrictRun(server) },
    async [Symbol.asyncDispose]() {
      await client[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

// TuFT with persistence continues from its last checkpoint and keeps counting, as if nothing was lost.
describe('a server that ended and was started again', () => {
  for (const [who, path] of [
    ['an operation', 'optim_step'],
    ['a poll', 'retrieve_future'],
  ] as const) {
    it(`a training run is lost if ${who} was refused the connection`, async () => {
      await using place = await connected();
      const { strict, network, client } = place;
      const run = await strict.create(client);
      network.fails('ECONNREFUSED', path);
      await assert.rejects(run.optimStep(adam), RunLost);
      await assert.rejects(run.optimStep(adam), RunLost);
    });
  }

  it('a training run is lost if any other request was refused the connection', async () => {
    await using place = await connected();
    const { server, strict, network, client } = place;
    const run = await strict.create(client);
    network.fails('ECONNREFUSED', 'training_runs/run-1/checkpoints?limit=100&offset=0');
    server.on('GET training_runs/run-1/checkpoints', () => ({ json: { checkpoints: [] } }));
    await client.listCheckpoints('run-1');
    await assert.rejects(run.optimStep(adam), /its server ended since the run began/);
    assert.deepEqual(strict.seqIds, []);
  });

  it('a training run is kept if another host refused the connection, such as one that stores archives', async () => {
    await using place = await connected();
    const { server, strict, network, client } = place;
    const run = await strict.create(client);
    await using store = createServer((_, response) => response.writeHead(404).end());
    store.listen(0, '127.0.0.1');
    await once(store, 'listening');
    const url = `http://127.0.0.1:${(store.address() as AddressInfo).port}/stored.tar`;
    server.script('GET training_runs/run-1/checkpoints/sampler_weights/step-2/archive', {
      json: { url },
    });
    network.fails('ECONNREFUSED', 'stored.tar');
    const path = 'tinker://run-1/sampler_weights/step-2';
    await assert.rejects(client.downloadAdapter(path));
    await run.optimStep(adam);
  });

  it('a training run that was created after the restart is kept', async () => {
    await using place = await connected();
    const { strict, network, client } = place;
    network.fails('ECONNREFUSED', 'create_model');
    const run = await strict.create(client);
    await run.optimStep(adam);
  });
});
