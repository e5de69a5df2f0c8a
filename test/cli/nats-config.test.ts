import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { connectBroker } from '../../shared/broker/connect.js';
import { writeNatsConfig } from '../../cli/nats-config.js';
import { hasCertificateFor, accessWith } from '../../cli/nats-server/keys.js';
import { silent } from '../support/log.js';
import { NatsServer } from '../support/nats-server.js';
import { runOffbeat } from '../support/offbeat.js';

describe('offbeat nats-config', { timeout: 60_000 }, () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-keys-'));
  });
  afterEach(() => rm(folder, { recursive: true }));

  const write = (...flags: string[]) =>
    runOffbeat(['nats-config', '--run=far', `--out=${join(folder, 'keys')}`, ...flags], folder);

  it('offbeat nats-config writes the files for the server and the services of a run, secrets readable only by the owner', async () => {
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

  it('offbeat nats-config warns if its files for the servers do not fit into a Secret of Kubernetes', async () => {
    const toldOf = (run: string) =>
      writeNatsConfig({ run, out: join(folder, run), actors: 256, evalActors: 0 });
    assert.doesNotMatch(await toldOf('countdown-qwen3-4b'), /Secret/);
    assert.match(
      await toldOf('r'.repeat(48)),
      /nats-server\.conf has \d{7} bytes, and a Secret .*shorter/,
    );
  });

  it('offbeat nats-config refuses a folder that cannot be made, and one of a certificate that is not asked for', async () => {
    assert.match((await write('--tls-folder=/etc/nats')).err, /--tls-folder .*add it, or remove/);
    await writeFile(join(folder, 'keys'), '');
    const { code, err } = await write();
    assert.equal(code, 2);
    assert.match(err, /^.*keys is not a folder that can be written \(.*\); name .* --out\n$/);
  });

  describe('a repeated offbeat nats-config', () => {
    const again = (actors: number, tlsHosts?: string) =>
      writeNatsConfig({ run: 'far', out: folder, actors, evalActors: 0, tlsHosts });
    const held = (file: string) => readFile(join(folder, file), 'utf8');

    it('a repeated offbeat nats-config keeps the existing keys and says which are new or left out', async () => {
      assert.match(await again(1), /^5 keys; their permissions are in .*nats-server\.conf\n$/);
      const before = await held('actor.actor-0.nk');
      assert.match(await again(2), /new: actor\.actor-1; restart the servers, one after another/);
      assert.equal(await held('actor.actor-0.nk'), before);
      assert.match(await held('nats-server.conf'), /actor:actor-1/);
      const told = await again(1);
      assert.match(told, /left out, although their keys exist: actor\.actor-1; --actors/);
      assert.doesNotMatch(told, /new:/);
      assert.doesNotMatch(await held('nats-server.conf'), /actor:actor-1/);
      assert.match(await again(2), /new: actor\.actor-1; restart the servers, one after another/);
      await rm(join(folder, 'actor.actor-1.nk')); // another key is let into the same account
      assert.match(await again(2), /^6 keys; their permissions are in .*nats-server\.conf\n$/);
    });

    it('a repeated offbeat nats-config names a file that a full disk left without its key', async () => {
      await again(1);
      const path = join(folder, 'actor.actor-0.nk');
      const key = await held('actor.actor-0.nk');
      await writeFile(path, key.slice(0, 20));
      await assert.rejects(again(1), {
        name: 'UserError',
        message: /actor\.actor-0\.nk holds no valid key\. Restore it, or delete it/,
      });
      await rm(path);
      await again(1);
      const written = await held('actor.actor-0.nk');
      assert.match(written, /^SU[A-Z0-9]{56}\n$/);
      assert.notEqual(written, key);
    });

    it('a key that does not fit on the disk leaves no file', async () => {
      const module = new URL('../../cli/nats-config.js', import.meta.url).href;
      const program = `
        const { writeNatsConfig } = await import(${JSON.stringify(module)});
        const asked = { run: 'far', out: process.argv[1], actors: 1, evalActors: 0 };
        await writeNatsConfig(asked).catch(({ code }) => console.log(code));`;
      const node = [process.execPath, '--input-type=module', '--eval', program, folder];
      const { stdout } = await promisify(execFile)(
        ...(['/bin/sh', ['-c', 'ulimit -f 0; exec "$@"', 'sh', ...node]] as const),
      );
      assert.deepEqual([stdout.trim(), await readdir(folder)], ['EFBIG', []]);
    });

    it('a repeated offbeat nats-config keeps a certificate for the same hosts, so that no client needs another authority', async () => {
      assert.match(await again(1, '127.0.0.1,nats.example'), /a new certificate/);
      const before = await held('ca.pem');
      assert.doesNotMatch(await again(2, 'nats.example,127.0.0.1'), /certificate/);
      assert.equal(await held('ca.pem'), before);
      assert.match(await again(2, 'other.example'), /a new certificate: clients need .*ca\.pem/);
      assert.notEqual(await held('ca.pem'), before);
    });

    it('a repeated offbeat nats-config replaces a certificate a month before it expires', async () => {
      await again(1, 'nats.example');
      const madeAt = Date.now();
      const holdsIn = (days: number) =>
        hasCertificateFor(folder, ['nats.example'], madeAt + days * 86_400_000);
      assert.deepEqual([await holdsIn(366), await holdsIn(368)], [true, false]);
    });

    it('a repeated offbeat nats-config replaces a certificate whose key is missing, broken or of another one', async () => {
      await again(1, 'nats.example');
      const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const pem = privateKey.export({ type: 'pkcs8', format: 'pem' });
      await writeFile(join(folder, 'server-key.pem'), pem);
      assert.equal(await hasCertificateFor(folder, ['nats.example']), false);
      await writeFile(join(folder, 'server-key.pem'), 'torn');
      assert.equal(await hasCertificateFor(folder, ['nats.example']), false);
      await rm(join(folder, 'server-key.pem'));
      assert.equal(await hasCertificateFor(folder, ['nats.example']), false);
    });

    it('a repeated offbeat nats-config leaves the files of another run alone and asks for another folder', async () => {
      await again(1);
      const files = ['nats-server.conf', 'learner.nk', 'actor.actor-0.nk'];
      const before = await Promise.all(files.map(held));
      const another = { run: 'fa', out: folder, actors: 2, evalActors: 0 };
      await assert.rejects(writeNatsConfig(another), {
        name: 'UserError',
        message: /nats-server\.conf belongs to run far\. .*: choose another --out, or delete/,
      });
      assert.deepEqual(await Promise.all(files.map(held)), before);
      assert.equal((await readdir(folder)).includes('actor.actor-1.nk'), false);
      await writeFile(join(folder, 'nats-server.conf'), 'port: 4222\n');
      await assert.rejects(writeNatsConfig(another), /nats-server\.conf does not name run fa\./);
    });

    it('a repeated offbeat nats-config refuses to leave the hosts out, which would end TLS for clients that require it', async () => {
      await again(1, 'nats.example');
      const before = await held('nats-server.conf');
      await assert.rejects(again(2), {
        name: 'UserError',
        message: /--tls-hosts is missing, and .* has a certificate: name the same hosts again/,
      });
      assert.equal(await held('nats-server.conf'), before);
    });
  });
});
