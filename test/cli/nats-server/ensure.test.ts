import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import {
  ensureNatsServer,
  type EnsureOptions,
  findInstalled,
} from '../../../cli/nats-server/ensure.js';
import { UserError } from '../../../shared/base/errors.js';
import { executable, fakeServer } from './fakes.js';

describe('the search for nats-server', () => {
  let root: string;
  let cache: string;
  let early: string;
  let late: string;
  const reports: string[] = [];

  /** Nothing on this machine but what the test puts there. */
  const ensure = (env: Record<string, string> = {}, options: Partial<EnsureOptions> = {}) =>
    ensureNatsServer({
      env,
      cache,
      folders: [early, late],
      report: (line) => reports.push(line),
      release: { version: '9.9.9', baseUrl: 'http://127.0.0.1:9', sha256: {} },
      ...options,
    });

  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'offbeat-ensure-'));
    [cache, early, late] = [join(root, 'cache'), join(root, 'early'), join(root, 'late')];
    reports.length = 0;
  });
  afterEach(() => rm(root, { recursive: true }));

  it('nats-server is taken from OFFBEAT_NATS_SERVER before any other place', async () => {
    await fakeServer(early, '2.10.0');
    const named = await fakeServer(join(root, 'mine'), '2.9.10');
    const found = await ensure({ OFFBEAT_NATS_SERVER: named });
    assert.deepEqual(found, { path: named, version: '2.9.10' });
  });

  it('nats-server is never taken from another place if OFFBEAT_NATS_SERVER cannot be used', async () => {
    await fakeServer(early, '2.10.0');
    const wrong: [string, RegExp][] = [
      [join(root, 'none'), /none is not an executable file/],
      [root, /is not a file/],
      [
        await executable(join(root, 'other'), '#!/bin/sh\necho hello\n'),
        /did not answer like.*hello/,
      ],
      [await fakeServer(join(root, 'old'), '2.8.4'), /is nats-server 2\.8\.4; 2\.9\.0 or newer/],
    ];
    for (const [path, message] of wrong) {
      await assert.rejects(ensure({ OFFBEAT_NATS_SERVER: path }), (error) => {
        assert(error instanceof UserError);
        assert.match(error.message, message);
        return true;
      });
    }
  });

  it('nats-server is taken from the first folder of PATH that has a usable one', async () => {
    await executable(join(early, 'nats-server'), '#!/bin/sh\nexit 126\n');
    const path = await fakeServer(late, '2.10.27');
    await fakeServer(join(cache, '2.15.1'), '2.15.1');
    assert.deepEqual(await ensure(), { path, version: '2.10.27' });
    assert.deepEqual(reports, []);
  });

  it('nats-server is taken from the cache, the newest version that runs', async () => {
    await fakeServer(join(cache, '2.9.10'), '2.9.10');
    const path = await fakeServer(join(cache, '2.10.2'), '2.10.2');
    await executable(join(cache, '2.14.0', 'nats-server'), 'cut off');
    assert.deepEqual(await ensure(), { path, version: '2.10.2' });
  });

  it('nats-server is taken from the package of the distribution and unpacked into the cache', async () => {
    await fakeDistribution();
    const found = await ensure();
    assert.deepEqual(found, { path: join(cache, '2.9.10', 'nats-server'), version: '2.9.10' });
    assert.deepEqual(reports, ['fetching nats-server: the package of this distribution']);
    assert.deepEqual(await readdir(cache), ['2.9.10']); // and nothing else is left
    assert.deepEqual(await ensure(), found); // now found at once
    assert.equal(reports.length, 1);
  });

  it('nats-server is taken from the package with downloaded package lists if the system has none', async () => {
    await fakeDistribution({ hasLists: false });
    assert.equal((await ensure()).version, '2.9.10');
  });

  it('an installed nats-server is looked for without a download, and each place without one says why', async () => {
    await fakeDistribution();
    await fakeServer(early, '2.8.4');
    const failures = await findInstalled({ env: {}, cache, folders: [early, late] });
    assert(Array.isArray(failures));
    assert.equal(failures.length, 2);
    assert.match(failures[0]!, /is nats-server 2\.8\.4; 2\.9\.0 or newer/);
    assert.match(failures[1]!, /^none in the cache /);
  });

  it('the error without nats-server names each place and why it failed', async () => {
    await executable(join(early, 'nats-server'), '#!/bin/sh\necho "exec format"; exit 1\n');
    await executable(join(early, 'apt-get'), '#!/bin/sh\necho "E: no network"; exit 100\n');
    await executable(join(early, 'dpkg-deb'), '#!/bin/sh\nexit 1\n');
    await assert.rejects(ensure(), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /^no nats-server was found or downloaded:/);
      assert.match(error.message, /early\/nats-server --version .*exec format/);
      assert.match(error.message, /none in the cache/);
      assert.match(error.message, /apt-get download nats-server: E: no network/);
      assert.match(error.message, /no pinned release archive for/);
      assert.match(error.message, /on PATH.*OFFBEAT_NATS_SERVER[^]*--nats-url/);
      return true;
    });
  });

  /** An apt-get that downloads a text, and a dpkg-deb that makes a server of it. */
  async function fakeDistribution({ hasLists = true } = {}): Promise<void> {
    const server = join(root, 'in-package');
    await fakeServer(server, '2.9.10');
    await executable(
      join(early, 'apt-get'),
      `#!/bin/sh
case "$*" in *Dir::Cache=${cache}/*) ;; *) echo "the system's cache!"; exit 1;; esac
case "$*" in
  *Dir::State::Lists=${cache}/*update) touch updated;;
  *download*) if ${hasLists ? 'true' : '[ -f updated ]'}; then echo package > nats-server_2.9.10_any.deb
    else echo "E: Unable to locate package nats-server"; exit 100; fi;;
  *) exit 1;;
esac
`,
    );
    await executable(
      join(early, 'dpkg-deb'),
      `#!/bin/sh
[ "$1" = -x ] && grep -q package "$2" && mkdir -p "$3/usr/sbin" && cp ${server}/nats-server "$3/usr/sbin/"
`,
    );
  }
});
