import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { ensureNatsServer } from '../../cli/nats-server/ensure.js';
import { accessWith } from '../../cli/nats-server/keys.js';
import { startNats } from '../../cli/nats-server/start.js';
import { runFolderAt } from '../../cli/run-folder.js';
import type { Broker } from '../../shared/broker/broker.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { apiKey, forwardBackward, startOn, Wire } from '../local-backend/running-backend.js';
import { brokerOn } from '../support/broker.js';
import { silent } from '../support/log.js';
import { checkpoint, runConfig, ticket } from '../support/messages.js';
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
    const timing = { renewEveryMs: 250, expiresMs: 1_500 };
    await using _leadership = await broker.ledger.lead('learner-7', never, timing);
    const { code, err } = await run('--yes');
    assert.deepEqual(
      [code, err],
      [2, 'a learner leads run test; stop it, and then delete the run\n'],
    );
  });

  it('without --yes the command says what it would delete, and deletes nothing', async () => {
    const { code, out } = await run();
    assert.equal(code, 0);
    assert.match(out, /^on nats:\S+: 12 streams with 1 message, [\d.]+ [kM]B$/m);
    assert.match(out, /^nothing was deleted; add --yes/m);
    assert((await broker.depths()).tickets === 1);
  });

  it('the password in the address of the NATS server is not printed', async () => {
    const address = server.url.replace('://', '://me:secret@');
    const words = ['delete', '--run=test', `--nats-url=${address}`];
    const { code, out, err } = await runOffbeat(words, '.');
    assert.equal(code, 0, err);
    assert.match(out, /^on nats:/m);
    assert.doesNotMatch(out + err, /secret/);
  });

  it('a run is deleted from the NATS server, and its checkpoints from the backend', async () => {
    await using model = await tinyModel();
    await using backend = await startOn(model.path);
    const wire = new Wire(backend.url);
    const id = await wire.createModel(await wire.createSession());
    await wire.sendForwardBackward(forwardBackward(id, 1));
    await wire.optimStep(id, 2);
    let operations = 2;
    const save = async (path: string) => {
      const saving = { model_id: id, seq_id: ++operations, path };
      await wire.result(await wire.post('save_weights', saving));
      return `tinker://${id}/weights/${path}`;
    };
    const statePath = await save('state-000001');
    const began = await save('state-000007'); // as by another run
    const states = [began, statePath].map((path, step) => ({ step, path }));
    await broker.ledger.write(checkpoint({ statePath, states }));
    // As after a command that was interrupted: without the configuration it is not known which one the run began from.
    const place = [`--backend-url=${backend.url}`, `--api-key=${apiKey}`];
    assert.doesNotMatch((await run(...place)).out, /checkpoint/);
    const from = { path: began };
    await new RunConfigStore(broker).put(runConfig({ run: 'test', from }));

    assert.match((await run()).out, /^at the backend: 1 checkpoint, which stay there; name it/m);
    const orphaning = await run('--yes');
    assert.equal(orphaning.code, 2);
    assert.match(orphaning.err, /^only this NATS server knows .* --backend-url .* --keep-checkp/);
    const keeping = await run(...place, '--keep-checkpoints');
    assert.match(keeping.out, /: 1 checkpoint, which stay there\nnothing was deleted/);
    const { code, out, err } = await run('--yes', ...place);
    assert.equal(code, 0, err);
    assert.match(out, /: 1 checkpoint\ndeleted\n$/);
    const left = (await wire.get('checkpoints'))['checkpoints'] as { tinker_path: string }[];
    assert.deepEqual(
      left.map(({ tinker_path }) => tinker_path),
      [began],
    );
    assert.equal((await broker.storedSize()).streams, 0);

    const again = await run('--yes');
    assert.deepEqual([again.code, again.err], [2, 'the NATS server knows no run test\n']);
  });

  it('a run with a NATS server of its own loses only its checkpoints at the backend', async () => {
    await using model = await tinyModel();
    await using backend = await startOn(model.path);
    const wire = new Wire(backend.url);
    const id = await wire.createModel(await wire.createSession());
    const saving = { model_id: id, seq_id: 1, path: 'state-000000' };
    await wire.result(await wire.post('save_weights', saving));
    const statePath = `tinker://${id}/weights/state-000000`;

    const folder = runFolderAt(join(model.path, 'runs'), 'own');
    await mkdir(folder.nats, { recursive: true });
    await writeFile(folder.launch, '{"run":"own","launcher":{"sampler":"onnx"}}');
    {
      const { path } = await ensureNatsServer({ env: process.env, report: () => undefined });
      const identity = { role: 'learner' } as const;
      const options = { run: 'own', identities: [identity], deadlineMs: 20_000, signal: never };
      const log = join(model.path, 'nats.log');
      const {
        url: natsUrl,
        keyFolder,
        process: nats,
      } = await startNats(...([path, folder.nats, log, options] as const));
      const access = { natsUrl, ...accessWith(keyFolder, identity) };
      const name = { run: 'own', client: 'learner', identity, log: silent, signal: never };
      await using learner = await connectBroker({ ...access, ...name });
      await learner.ensureRun({ trainTickets: 8, evalTickets: 8 });
      await new RunConfigStore(learner).put(runConfig({ run: 'own' }));
      await learner.ledger.write(checkpoint({ statePath, states: [] }));
      await learner[Symbol.asyncDispose]();
      await nats.stop(10_000, never);
    }
    const own = (...words: string[]) =>
      runOffbeat(['delete', '--run=own', '--runs-dir=runs', ...words], model.path);
    const alone = await own('--yes');
    assert.deepEqual(
      [alone.code, alone.err],
      [
        2,
        `run own is on no server of yours: everything is in ${folder.path}; delete that folder\n`,
      ],
    );
    const keyless = await own('--yes', `--backend-url=${backend.url}`);
    assert.equal(keyless.err, `give the key of ${backend.url} by --api-key or TINKER_API_KEY\n`);
    const { code, out, err } = await own(
      ...['--yes', `--backend-url=${backend.url}`, `--api-key=${apiKey}`],
    );
    assert.equal(code, 0, err);
    assert.equal(
      out,
      `on ${backend.url}: 1 checkpoint\ndeleted; its folder ${folder.path} stays\n`,
    );
    assert.deepEqual((await wire.get('checkpoints'))['checkpoints'], []);
  });
});
