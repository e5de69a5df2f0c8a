import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { z } from 'zod';
import { identitiesOf } from '../../../cli/nats-server/keys.js';
import { ensureNatsServer } from '../../../cli/nats-server/ensure.js';
import { findRunningNats } from '../../../cli/nats-server/running.js';
import { startNats, type RunningNats } from '../../../cli/nats-server/start.js';
import { UserError } from '../../../shared/base/errors.js';
import { SmallDisk } from '../../support/small-disk.js';
import { isRunning } from '../../support/processes.js';
import { never } from '../../support/waiting.js';
import { executable } from './fakes.js';

describe("a run's nats-server", { timeout: 60_000 }, () => {
  let folder: string;
  let log: string;
  const ours = { run: 'test', identities: identitiesOf([]), signal: never };

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-start-'));
    log = join(folder, 'nats-server.log');
  });
  afterEach(() => rm(folder, { recursive: true }));

  it("a run's nats-server listens only on loopback, with JetStream in the folder of the run", async () => {
    const { path } = await ensureNatsServer({ env: process.env, report: () => undefined });
    const nats = await startNats(path, folder, log, { ...ours, deadlineMs: 20_000 });
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

  it('a nats-server that starts on a nearly full disk stores more once there is room', async (context) => {
    using disk = SmallDisk.at(join(folder, 'disk'), 10_000_000);
    if (disk === undefined) {
      context.skip('needs the right to mount a file system');
      return;
    }
    const kept = join(disk.folder, 'kept');
    await writeFile(kept, Buffer.alloc(400_000));
    disk.fill();
    await rm(kept);
    const { path } = await ensureNatsServer({ env: process.env, report: () => undefined });
    const store = join(disk.folder, 'nats');
    const nats = await startNats(path, store, log, { ...ours, deadlineMs: 20_000 });
    try {
      disk.clear();
      const jetStream = await (await fetch(`${nats.monitoringUrl}/jsz`)).json();
      const { config } = z
        .object({ config: z.object({ max_storage: z.number() }) })
        .parse(jetStream);
      assert(config.max_storage > 10_000_000);
    } finally {
      await nats.process.stop(10_000, never);
    }
  });

  it('no second nats-server is started on a store, and one that ends is waited for', async () => {
    const { path } = await ensureNatsServer({ env: process.env, report: () => undefined });
    const start = (deadlineMs: number) => startNats(path, folder, log, { ...ours, deadlineMs });
    const first = await start(20_000);
    let starting: Promise<RunningNats> | undefined;
    try {
      await assert.rejects(start(0), (error) => {
        assert(error instanceof UserError);
        assert.match(
          error.message,
          new RegExp(`^the nats-server at ${first.url} keeps its streams in ${folder}, and`),
        );
        return true;
      });
      assert.deepEqual(await findRunningNats(folder), {
        url: first.url,
        monitoringUrl: first.monitoringUrl,
      });
      starting = start(20_000);
    } finally {
      await first.process.stop(10_000, never);
      await (await starting)?.process.stop(10_000, never);
    }
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
      startNats(idle, folder, log, { ...ours, deadlineMs: 3_000, deadlineFlag: '--x' }),
      /did not become ready: it wrote no ports file\n[^]*within 3 s; --x allows more$/,
    );
    const pid = Number(await readFile(join(folder, 'pid'), 'utf8'));
    assert(!isRunning(pid));
  });
});
