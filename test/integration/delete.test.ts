import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import type { Broker } from '../../shared/broker/broker.js';
import { apiKey, forwardBackward, startOn, Wire } from '../local-backend/running-backend.js';
import { brokerOn } from '../support/broker.js';
import { checkpoint, ticket } from '../support/messages.js';
import { NatsServer } from '../support/nats-server.js';
import { runOffbeat } from '../support/offbeat.js';
import { tinyModel } from '../support/tiny-model.js';
import { never } from '../support/waiting.js';

describe('offbeat delete', { timeout: 240_000 }, () => {
  let server: NatsServer;
  let broker: Broker;
  before(async () => {
    server = await NatsServer.start();
    broker = await brokerOn(server);
    await broker.ensureRun({ trainTickets: 8, evalTickets: 8 });
    await broker.tickets.publish(ticket(), { signal: never });
  });
  after(async () => {
    await broker[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  const run = (...words: string[]) =>
    runOffbeat(['delete', '--run=test', `--nats-url=${server.url}`, ...words], '.');

  it('a run is not deleted while a learner leads it', async () => {
    await using _leadership = await broker.ledger.lead('learner-7', never);
    const { code, err } = await run('--yes');
    assert.deepEqual(
      [code, err],
      [
        2,
        'a learner leads run test, or was killed a moment ago; stop it, and then delete the run\n',
      ],
    );
  });

  it('without --yes the command says what it would delete, and deletes nothing', async () => {
    const { code, out } = await run();
    assert.equal(code, 0);
    assert.match(out, /^on nats:\S+: 12 streams with 1 message, [\d.]+ [kM]B$/m);
    assert.match(out, /^nothing was deleted; add --yes/m);
    assert((await broker.depths()).tickets === 1);
  });

  it('a run is deleted from the NATS server, and its checkpoints from the backend', async () => {
    await using model = await tinyModel();
    await using backend = await startOn(model.path);
    const wire = new Wire(backend.url);
    const id = await wire.createModel(await wire.createSession());
    await wire.sendForwardBackward(forwardBackward(id, 1));
    await wire.optimStep(id, 2);
    const saving = { model_id: id, seq_id: 3, path: 'state-000001' };
    await wire.result(await wire.post('save_weights', saving));
    const statePath = `tinker://${id}/weights/state-000001`;
    await broker.ledger.write(checkpoint({ statePath, states: [{ step: 1, path: statePath }] }));

    assert.match((await run()).out, /^at the backend: 1 checkpoint, which stay there; name it/m);
    const place = [`--backend-url=${backend.url}`, `--api-key=${apiKey}`];
    const { code, out, err } = await run('--yes', ...place);
    assert.equal(code, 0, err);
    assert.match(out, /: 1 checkpoint\ndeleted\n$/);
    assert.deepEqual((await wire.get('checkpoints'))['checkpoints'], []);
    assert.equal((await broker.storedSize()).streams, 0);

    const again = await run('--yes');
    assert.deepEqual([again.code, again.err], [2, 'the NATS server knows no run test\n']);
  });
});
