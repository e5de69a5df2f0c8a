import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { connectBroker } from '../../../shared/broker/connect.js';
import { accessWith } from '../../../deploy/local/nats-server/keys.js';
import { silent } from '../../support/broker.js';
import { NatsServer } from '../../support/nats-server.js';
import { runOffbeat } from '../../support/offbeat.js';

describe('offbeat nats-config', { timeout: 60_000 }, () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-keys-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  const write = (...flags: string[]) =>
    runOffbeat(['nats-config', '--run=far', `--out=${join(folder, 'keys')}`, ...flags], folder);

  it('writes what a server and the services of a run need, secrets for their owner alone', async () => {
    const { code, err } = await write('--actors=1', '--tls-hosts=127.0.0.1,nats.example');
    assert.equal(code, 0, err);
    const files = await readdir(join(folder, 'keys'));
    const expected = [
      'actor.actor-0.nk',
      'ca.pem',
      'learner.nk',
      'nats-server.conf',
      'observer.nk',
    ];
    expected.push('operator.nk', 'reward.nk', 'server-key.pem', 'server.pem');
    assert.deepEqual(files.sort(), expected);
    for (const file of files.filter((name) => /\.nk$|-key/.test(name))) {
      assert.equal((await stat(join(folder, 'keys', file))).mode & 0o777, 0o600);
    }
    const included = await readFile(join(folder, 'keys', 'nats-server.conf'), 'utf8');
    assert.doesNotMatch(included, /\bSU[A-Z2-7]{40}/); // no seed; a public key may have these letters inside
    await using server = await NatsServer.start({ configuration: included });
    const identity = { role: 'actor', actor: 'actor-0' } as const;
    await using broker = await connectBroker({
      natsUrl: server.url,
      ...accessWith(join(folder, 'keys'), identity),
      ...{
        run: 'far',
        client: 'test',
        identity,
        log: silent,
        signal: new AbortController().signal,
      },
    });
    assert(broker.isConnected);
  });

  it('keeps the keys that are there when actors are added', async () => {
    await write('--actors=1');
    const before = await readFile(join(folder, 'keys', 'actor.actor-0.nk'), 'utf8');
    await write('--actors=2');
    assert.equal(await readFile(join(folder, 'keys', 'actor.actor-0.nk'), 'utf8'), before);
    assert((await readdir(join(folder, 'keys'))).includes('actor.actor-1.nk'));
  });
});
