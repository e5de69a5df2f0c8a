import assert from 'node:assert/strict';
import { mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { accountsText } from '../../../cli/nats-server/accounts.js';
import { accessWith, identitiesOf, writeKeys } from '../../../cli/nats-server/keys.js';
import { accountsBlock, startNats } from '../../../cli/nats-server/start.js';
import type { Broker } from '../../../shared/broker/broker.js';
import { connectBroker } from '../../../shared/broker/connect.js';
import type { Identity } from '../../../shared/broker/permissions.js';
import { brokerOn } from '../../support/broker.js';
import { silent } from '../../support/log.js';
import { checkpoint } from '../../support/messages.js';
import { NatsServer } from '../../support/nats-server.js';
import { never } from '../../support/waiting.js';

const learner: Identity = { role: 'learner' };
const observer: Identity = { role: 'observer' };

describe('the accounts of a run', { timeout: 120_000 }, () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-accounts-'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it('the accounts of a run are the only ones with access to it, on a server that two runs share', async () => {
    const runs = ['one', 'two'];
    const texts = await Promise.all(
      runs.map(async (run) =>
        accountsText(run, await writeKeys(join(folder, run), run, identitiesOf(['actor-0']))),
      ),
    );
    await using server = await NatsServer.start({ configuration: accountsBlock(texts.join('')) });
    const as = (run: string, identity: Identity) =>
      brokerOn(server, { run, identity, ...accessWith(join(folder, run), identity) });
    for (const run of runs) {
      await using trains = await as(run, learner);
      await layOut(trains);
      assert.equal((await trains.link.jsm.getAccountInfo()).streams, 12);
      await using watches = await as(run, observer);
      assert.equal((await watches.ledger.read())?.version, checkpoint().version);
    }
  });

  it('the accounts of a run receive the streams of a run that began without accounts', async () => {
    await using before = await NatsServer.start();
    {
      await using trains = await brokerOn(before);
      await layOut(trains);
    }
    await before.stop();
    await rename(before.storeFolder, join(folder, 'store'));

    const binary = process.env['OFFBEAT_NATS_SERVER'] ?? 'nats-server';
    const identities = [learner, observer];
    for (const start of ['first', 'second']) {
      const options = { run: 'test', identities, deadlineMs: 20_000, signal: never };
      const nats = await startNats(binary, folder, join(folder, 'log'), options);
      try {
        await using watches = await connectBroker({
          natsUrl: nats.url,
          ...accessWith(nats.keyFolder, observer),
          ...{ run: 'test', client: 'test', identity: observer, log: silent, signal: never },
        });
        assert.equal((await watches.ledger.read())?.version, checkpoint().version, start);
      } finally {
        await nats.process.stop(10_000, never);
      }
    }
  });
});

async function layOut(broker: Broker): Promise<void> {
  await broker.ensureRun({ trainTickets: 8, evalTickets: 8 });
  await using _leads = await broker.ledger.lead('learner', never);
  await broker.ledger.write(checkpoint());
}
