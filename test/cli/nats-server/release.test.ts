import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { createGzip } from 'node:zlib';
import { pack } from 'tar-stream';
import { sha256 } from '../../../shared/base/bytes.js';
import { takeRelease, pinnedRelease, releaseArchive } from '../../../cli/nats-server/download.js';
import { ensureNatsServer } from '../../../cli/nats-server/ensure.js';
import { serverText } from './fakes.js';

/** An archive as the project publishes it: a folder with licence, readme and the server. */
async function archiveOf(files: Record<string, string>): Promise<Buffer> {
  const tar = pack();
  for (const [name, text] of Object.entries(files)) tar.entry({ name, mode: 0o644 }, text);
  tar.finalize();
  return await buffer(tar.pipe(createGzip()));
}

/** Why it was not taken. */
function reasonOf(taken: Awaited<ReturnType<typeof takeRelease>>): string {
  assert(typeof taken === 'string');
  return taken;
}

describe('the official release of nats-server', () => {
  let archive: Buffer;
  let web: Server;
  let base: string;
  let cache: string;

  before(async () => {
    archive = await archiveOf({
      'nats-server-v2.14.5/LICENSE': 'Apache-2.0',
      'nats-server-v2.14.5/nats-server': serverText('2.14.5'),
    });
    web = createServer((request, response) => {
      if (!request.url?.endsWith('.tar.gz')) response.writeHead(404).end();
      else response.end(archive);
    }).listen(0, '127.0.0.1');
    await once(web, 'listening');
    base = `http://127.0.0.1:${(web.address() as AddressInfo).port}`;
  });
  after(() => web.close());
  beforeEach(async () => {
    cache = await mkdtemp(join(tmpdir(), 'offbeat-release-'));
  });
  afterEach(() => rm(cache, { recursive: true }));

  it('the official release is downloaded, verified and put into the cache as an executable', async () => {
    const taken = await takeRelease(cache, { url: `${base}/a.tar.gz`, sha256: sha256(archive) });
    assert.deepEqual(taken, { path: join(cache, '2.14.5', 'nats-server'), version: '2.14.5' });
    assert.deepEqual(await readdir(cache), ['2.14.5']);
  });

  it('the official release is refused if its checksum differs', async () => {
    const taken = await takeRelease(cache, { url: `${base}/a.tar.gz`, sha256: '0'.repeat(64) });
    assert.match(
      reasonOf(taken),
      new RegExp(`has the SHA-256 ${sha256(archive)}, not 0{64}: not used`),
    );
    assert.deepEqual(await readdir(cache), []);
  });

  it('the official release is reported as missing, unreachable or empty', async () => {
    const none = await takeRelease(cache, { url: `${base}/none`, sha256: '' });
    assert.match(reasonOf(none), /\/none answered 404/);

    const away = await takeRelease(cache, { url: 'http://127.0.0.1:9/a.tar.gz', sha256: '' });
    assert.match(reasonOf(away), /127\.0\.0\.1:9.* cannot be fetched: /);

    const right = archive;
    archive = await archiveOf({ 'nats-server-v2.14.5/LICENSE': 'Apache-2.0' });
    const empty = await takeRelease(cache, { url: `${base}/a.tar.gz`, sha256: sha256(archive) });
    archive = right;
    assert.match(reasonOf(empty), /holds no file called nats-server/);
  });

  it('the official release is the last resort, as the archive for this platform', async () => {
    const cpu = process.arch === 'x64' ? 'amd64' : process.arch;
    const target = `${process.platform}-${cpu}`;
    const release = { version: '2.14.5', baseUrl: base, sha256: { [target]: sha256(archive) } };
    const reports: string[] = [];
    const report = (line: string) => reports.push(line);
    const found = await ensureNatsServer({ env: {}, cache, folders: [], report, release });
    assert.equal(found.version, '2.14.5');
    assert.deepEqual(reports, [
      `fetching nats-server: ${base}/v2.14.5/nats-server-v2.14.5-${target}.tar.gz`,
    ]);
  });

  it('the official release is pinned for the supported platforms and for no other', () => {
    for (const [platform, architecture] of [
      ['linux', 'x64'],
      ['linux', 'arm64'],
      ['darwin', 'x64'],
      ['darwin', 'arm64'],
    ] as const) {
      const found = releaseArchive(pinnedRelease, platform, architecture);
      assert.match(found?.url ?? '', /^https:\/\/github\.com\/nats-io\/nats-server\/.*\.tar\.gz$/);
      assert.match(found?.sha256 ?? '', /^[0-9a-f]{64}$/);
    }
    assert.equal(releaseArchive(pinnedRelease, 'win32', 'x64'), undefined);
    assert.equal(releaseArchive(pinnedRelease, 'linux', 'riscv64'), undefined);
  });
});
