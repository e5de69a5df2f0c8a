import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { offbeatProgram } from '../../shared/base/package-root.js';
import { findRun, runningStore } from '../../cli/existing-run/find-run.js';
import { readStore, type ReadStoreOptions } from '../../cli/existing-run/read-store.js';
import { lockFolder } from '../../shared/service/folder-lock.js';
import { ensureNatsServer } from '../../cli/nats-server/ensure.js';
import { accessWith } from '../../cli/nats-server/keys.js';
import { startNats, type RunningNats } from '../../cli/nats-server/start.js';
import { runFolderAt, type RunFolder } from '../../cli/run-folder.js';
import type { StatusReport } from '../../cli/status/report.js';
import { UserError } from '../../shared/base/errors.js';
import type { Broker } from '../../shared/broker/broker.js';
import { connectBroker } from '../../shared/broker/connect.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import { encode } from '../../shared/wire/codec.js';
import { LeaderLease } from '../../shared/wire/ledger.js';
import { silent } from '../support/log.js';
import { runConfig } from '../support/messages.js';
import { never } from '../support/waiting.js';

const run = 'r';
const asLearner = { role: 'learner' } as const;

describe('the store of a run in its folder', { timeout: 120_000 }, () => {
  let place: string;
  let folder: RunFolder;
  let starts: number; // of servers, by readStore
  const natsBinary = () => ensureNatsServer({ env: process.env, report: () => undefined });

  /** The run's server, as `offbeat up` starts it under the lock. */
  const startServer = async (): Promise<RunningNats & AsyncDisposable> => {
    const identities = [asLearner, { role: 'observer' } as const];
    const options = { run, identities, deadlineMs: 20_000, signal: never };
    const log = join(place, 'nats-server.log');
    const server = await startNats((await natsBinary()).path, folder.nats, log, options);
    const stop = async () => {
      await server.process.stop(10_000, never);
    };
    return { ...server, [Symbol.asyncDispose]: stop };
  };
  const connect = ({ url: natsUrl, keyFolder }: RunningNats): Promise<Broker> =>
    connectBroker({
      natsUrl,
      ...accessWith(keyFolder, asLearner),
      ...{ run, client: 'learner', identity: asLearner, log: silent, signal: never },
    });
  const read = async <T>(
    look: (broker: Broker, isStopped: boolean) => Promise<T>,
    over: Partial<ReadStoreOptions> = {},
    runsDir = join(place, 'runs'),
  ): Promise<T> => {
    const options: ReadStoreOptions = {
      found: await findRun({ run, runsDir }),
      natsBinary: () => {
        starts++;
        return natsBinary();
      },
      command: 'status',
      deadlineMs: 20_000,
      logFolder: place,
      signal: never,
      hurry: never,
      log: silent,
      ...over,
    };
    return await readStore(options, look);
  };
  const putLease = (learner: Broker, renewedAt: number) => {
    const lease = encode(LeaderLease, { v: 1, holder: 'learner', renewedAt });
    return learner.link.js.publish(`$KV.${learner.names.buckets.ledger}.leader`, lease);
  };
  const isThere = async (broker: Broker, isStopped: boolean) => {
    assert(await broker.isThere());
    return isStopped;
  };

  before(async () => {
    place = await mkdtemp(join(tmpdir(), 'offbeat-store-'));
    folder = runFolderAt(join(place, 'runs'), run);
    await mkdir(folder.nats, { recursive: true });
    await writeFile(folder.launch, JSON.stringify({ run, launcher: { sampler: 'onnx' } }));
    await using server = await startServer();
    await using learner = await connect(server);
    await learner.ensureRun({ trainTickets: 8, evalTickets: 8 });
    await new RunConfigStore(learner).put(runConfig({ run }));
    await putLease(learner, Date.now() + 60_000); // a learner that was killed, on a slow machine
  });
  beforeEach(() => {
    starts = 0;
  });
  after(() => rm(place, { recursive: true }));

  it('a stopped run is read at a server of its own, and its folder is locked meanwhile', async () => {
    const isStopped = await read(async (broker, isStopped) => {
      await assert.rejects(lockFolder(folder.path, 'offbeat up', { readerMs: 0 }), {
        name: 'FolderInUse',
        message: `process ${process.pid} (offbeat status) is using ${folder.path}; wait until it ends, or end it`,
      });
      assert.equal(
        // it ends with the reader, so others must not rely on it
        await runningStore(await findRun({ run, runsDir: join(place, 'runs') })),
        undefined,
      );
      return await isThere(broker, isStopped);
    });
    assert(isStopped);
    using _lock = await lockFolder(folder.path, 'offbeat up', { readerMs: 0 });
  });

  it('two readers of a stopped run read it one after the other', async () => {
    let readers = 0;
    const look = async (broker: Broker, isStopped: boolean) => {
      assert.equal(++readers, 1);
      assert(await isThere(broker, isStopped));
      readers--;
    };
    await Promise.all([read(look), read(look, { command: 'eval' })]);
    assert.equal(starts, 2);
  });

  it('a run that is in use is read at its server, also through a link to its folder', async () => {
    using _lock = await lockFolder(folder.path, 'offbeat up');
    await using _server = await startServer();
    assert.equal(await read(isThere), false);
    await symlink(join(place, 'runs'), join(place, 'linked'));
    assert.equal(await read(isThere, {}, join(place, 'linked')), false);
    assert.equal(starts, 0);
  });

  it('a run whose server is still starting is read there', async () => {
    using _lock = await lockFolder(folder.path, 'offbeat up');
    const reading = read(isThere, { serverMs: 60_000 });
    await using _server = await startServer();
    assert.equal(await reading, false);
    assert.equal(starts, 0);
  });

  it('a server that a killed process has left is not relied on, but waited for', async () => {
    const server = await startServer();
    const reading = read(isThere);
    await server[Symbol.asyncDispose]();
    assert.equal(await reading, true);
  });

  describe('a run that is in use and whose server does not answer', () => {
    const answers = createServer((_, response) => response.end('{"config":{}}')); // without JetStream
    const portsFile = () => join(folder.nats, 'nats-server_1.ports');

    afterEach(() => rm(portsFile(), { force: true }));
    after(() => answers.close());

    for (const [name, listen] of [
      ['is on another host', () => Promise.resolve(1)],
      [
        'has switched JetStream off',
        async () => {
          await once(answers.listen(0, '127.0.0.1'), 'listening');
          return (answers.address() as AddressInfo).port;
        },
      ],
    ] as const) {
      it(`a run that is in use and whose server ${name} gets no second server`, async () => {
        using _lock = await lockFolder(folder.path, 'offbeat up');
        const monitoring = [`http://127.0.0.1:${await listen()}`];
        await writeFile(portsFile(), JSON.stringify({ nats: ['nats://127.0.0.1:1'], monitoring }));
        const config = await readFile(join(folder.nats, 'nats-server.conf'), 'utf8');
        await assert.rejects(read(isThere, { serverMs: 0 }), (error) => {
          assert(error instanceof UserError);
          assert.match(
            error.message,
            /^the NATS server of run r does not answer here; .*: process \d+ \(offbeat up\) is using/,
          );
          return true;
        });
        assert.equal(starts, 0);
        assert(existsSync(portsFile()));
        assert.equal(await readFile(join(folder.nats, 'nats-server.conf'), 'utf8'), config);
      });
    }
  });

  it('offbeat status --watch of a stopped run leaves its folder free, and goes on when the run is resumed', async () => {
    const flags = ['--run', run, '--watch', '--json', '--every-seconds=0.1'];
    const child = spawn(process.execPath, [offbeatProgram, 'status', ...flags], {
      cwd: place,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    try {
      const reports = createInterface(child.stdout)[Symbol.asyncIterator]();
      const phase = async () => {
        const { value } = (await reports.next()) as { value: string };
        return (JSON.parse(value) as StatusReport).phase;
      };
      assert.equal(await phase(), 'stopped');
      const [waits] = (await once(child.stderr, 'data')) as [Buffer];
      assert.equal(waits.toString(), 'run r is stopped; waiting until it is resumed\n');

      using _lock = await lockFolder(folder.path, 'offbeat up', { readerMs: 0 });
      await using server = await startServer();
      assert.equal(await phase(), 'training');
      await using learner = await connect(server);
      await putLease(learner, 0);
      const summary = { run, steps: 2, reason: 'max_steps' };
      await learner.events.emit({ v: 1, kind: 'end', at: Date.now(), summary });
      while ((await phase()) !== 'ended');
      const [code] = (await once(child, 'close')) as [number];
      assert.equal(code, 0);
    } finally {
      child.kill('SIGKILL');
    }
  });
});
