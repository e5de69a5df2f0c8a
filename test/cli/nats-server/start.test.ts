import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { identitiesOf } from '../../../cli/nats-server/keys.js';
import { searchFolders, findExecutables } from '../../../cli/nats-server/binary.js';
import { startNats } from '../../../cli/nats-server/start.js';
import { isRunning } from '../../support/processes.js';
import { executable } from './fakes.js';

describe("a run's nats-server", { timeout: 60_000 }, () => {
  let folder: string;
  let log: string;
  const never = new AbortController().signal;
  const ours = { run: 'test', identities: identitiesOf([]), signal: never };

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-start-'));
    log = join(folder, 'nats-server.log');
  });
  afterEach(() => rm(folder, { recursive: true }));

  it("a run's nats-server listens only on loopback, with JetStream in the folder of the run", async () => {
    const named = process.env['OFFBEAT_NATS_SERVER'];
    const [found] = await findExecutables('nats-server', searchFolders(process.env['PATH']));
    const binary = named ?? found;
    assert(binary !== undefined, 'OFFBEAT_NATS_SERVER names a nats-server');

    const nats = await startNats(binary, folder, log, { ...ours, deadlineMs: 20_000 });
    try {
      assert.match(nats.url, /^nats:\/\/127\.0\.0\.1:\d+$/);
      const get = async (path: string) =>
        (await (await fetch(nats.monitoringUrl + path)).json()) as Record<string, unknown>;
      assert.equal((await get('/varz'))['host'], '127.0.0.1');
      const jetStream = (await get('/jsz'))['config'] as { store_dir: string };
      assert.equal(jetStream.store_dir, join(folder, 'store', 'jetstream'));
    } finally {
      await nats.process.stop(10_000, never);
    }
    await assert.rejects(fetch(nats.monitoringUrl));
    assert.match(await readFile(log, 'utf8'), /JetStream Shutdown/);
  });

  it('a nats-server that ends at once is reported with the end of its log', async () => {
    const broken = await executable(join(folder, 'broken'), '#!/bin/sh\necho no disk; exit 7\n');
    await assert.rejects(
      startNats(broken, folder, log, { ...ours, deadlineMs: 20_000 }),
      /did not become ready: it ended with code 7\n +no disk/,
    );
  });

  it('a nats-server that never becomes healthy is stopped', async () => {
    const idle = await executable(
      join(folder, 'idle'),
      `#!/bin/sh\necho $$ > ${folder}/pid\nexec sleep 600\n`,
    );
    await assert.rejects(
      startNats(idle, folder, log, { ...ours, deadlineMs: 3_000 }),
      /did not become ready: it wrote no ports file/,
    );
    const pid = Number(await readFile(join(folder, 'pid'), 'utf8'));
    assert(!isRunning(pid));
  });
});
