import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { findRunningNats, forgetPorts } from '../../../cli/nats-server/running.js';

describe('the server that has the streams of a folder open', () => {
  let folder: string;
  let storeDir: string;
  const server = createServer((_, response) => {
    response.end(JSON.stringify({ config: { store_dir: storeDir } }));
  });

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-running-'));
    storeDir = join(folder, 'store', 'jetstream');
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const ports = { nats: ['nats://127.0.0.1:4'], monitoring: [`http://127.0.0.1:${port}`] };
    await writeFile(join(folder, 'nats-server_1.ports'), JSON.stringify(ports));
  });
  afterEach(async () => {
    server.closeAllConnections();
    server.close();
    await rm(folder, { recursive: true });
  });

  it('the server is found by its ports file', async () => {
    assert.equal((await findRunningNats(folder))?.url, 'nats://127.0.0.1:4');
  });

  it('the server is found through a link to the folder', async () => {
    await mkdir(storeDir, { recursive: true });
    const link = `${folder}-link`;
    await symlink(folder, link);
    try {
      assert.equal((await findRunningNats(link))?.url, 'nats://127.0.0.1:4');
    } finally {
      await rm(link);
    }
  });

  it('a server that reused the ports of a killed server is not mistaken for it', async () => {
    storeDir = '/elsewhere/store/jetstream';
    assert.equal(await findRunningNats(folder), undefined);
  });

  it('no server is found if none answers or the ports file is incomplete', async () => {
    await writeFile(join(folder, 'nats-server_1.ports'), '{"nats"');
    assert.equal(await findRunningNats(folder), undefined);
    const ports = { nats: ['nats://127.0.0.1:4'], monitoring: ['http://127.0.0.1:1'] };
    await writeFile(join(folder, 'nats-server_1.ports'), JSON.stringify(ports));
    assert.equal(await findRunningNats(folder), undefined);
  });

  it('the ports file of a server can be deleted', async () => {
    await forgetPorts(folder);
    assert.deepEqual(await readdir(folder), []);
  });
});
