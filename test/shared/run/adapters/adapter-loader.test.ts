import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { sha256 } from '../../../../shared/base/bytes.js';
import { PermanentError, UserError } from '../../../../shared/base/errors.js';
import {
  AdapterFolderStore,
  deleteAdapterFile,
} from '../../../../shared/run/adapters/adapter-folder-store.js';
import { AdapterAwaited, AdapterLoader } from '../../../../shared/run/adapters/adapter-loader.js';
import { AllowedSources } from '../../../../shared/run/adapters/allowed-sources.js';
import type { PolicyManifest } from '../../../../shared/wire/policy-manifest.js';
import { manifest } from '../../../actor/values.js';
import { FileServer, status } from '../../../support/file-server.js';
import { never } from '../../../support/waiting.js';

const bytes = Uint8Array.from({ length: 3_000_000 }, (_, i) => i % 251);
const scale = { rank: 4, alpha: 8 };

/** A manifest whose adapter is at this address. */
const at = (uri: string, more: object = {}): PolicyManifest =>
  manifest(3, {
    adapter: { uri, sha256: sha256(bytes), bytes: bytes.byteLength, ...scale, ...more },
  });

/** A loader that may fetch from these sources. */
const loader = (sources: string, stored: Uint8Array = bytes) =>
  new AdapterLoader({
    store: { fetchAdapter: () => Promise.resolve(stored) },
    allowed: new AllowedSources(sources, '--adapter-sources'),
    download: { sleep: () => Promise.resolve() },
  });

describe('fetching an adapter from where its manifest says', { timeout: 60_000 }, () => {
  let folder: string;
  let store: AdapterFolderStore;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-loader-'));
    store = new AdapterFolderStore(folder, 'r');
    await store.open(new Set());
  });
  after(() => rm(folder, { recursive: true, force: true }));

  it('an adapter of the object store needs no allowance', async () => {
    assert.equal(await loader('').fetchAdapter(at('nats:adapter-3'), never), bytes);
  });

  it('an adapter is fetched from a shared folder, as it was put there', async () => {
    const adapter = await store.put(3, { bytes, ...scale, format: 'F32' });
    assert.match(adapter.uri, /^file:\/\/\/.*\/r\/adapter-3-[0-9a-f]{16}\.safetensors$/);
    const found = await loader(folder).fetchAdapter(manifest(3, { adapter }), never);
    assert.deepEqual(found, bytes);
    const { uri, ...contents } = adapter;
    assert.deepEqual(contents, {
      ...{ sha256: sha256(bytes), bytes: bytes.byteLength, ...scale, format: 'F32' },
    });
    assert.deepEqual(await readdir(join(folder, 'r')), [uri.split('/').at(-1)]); // no draft is left
    await deleteAdapterFile('r', adapter);
    assert.deepEqual(await readdir(join(folder, 'r')), []);
    await deleteAdapterFile('r', adapter); // it is gone already
  });

  it('a torn, longer or other file is not loaded, and the error names the file and both values', async () => {
    const adapter = await store.put(3, { bytes, ...scale });
    const path = new URL(adapter.uri).pathname;
    const fetching = () => loader(folder).fetchAdapter(manifest(3, { adapter }), never);
    await truncate(path, 2_000_000);
    await assert.rejects(fetching(), (error: Error) => {
      assert(!(error instanceof PermanentError)); // another machine may see the rest a moment later
      assert.match(
        error.message,
        /^the adapter of policy version 3 is not loaded: \/.*2000000 bytes so far, of the 3000000/,
      );
      return true;
    });
    await writeFile(path, bytes.slice().fill(0, 1_500_000, 1_500_001));
    await assert.rejects(fetching(), (error) => {
      assert(error instanceof PermanentError);
      assert.match(error.message, /has SHA-256 [0-9a-f]{64}, but [0-9a-f]{64} is expected$/);
      return true;
    });
    await writeFile(path, new Uint8Array(3_000_001));
    await assert.rejects(fetching(), /has 3000001 bytes, but 3000000 are expected$/);
    await rm(path);
    await assert.rejects(fetching(), /cannot be read: ENOENT/);
  });

  it('a pipe is refused without being opened, since opening it would block', async () => {
    const pipe = join(folder, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const uri = pathToFileURL(pipe).href;
    await assert.rejects(loader(folder).fetchAdapter(at(uri), never), /pipe is not a file$/);
    await rm(pipe);
  });

  it('a file or a link elsewhere is an error of the user, with the remedy', async () => {
    await using server = await FileServer.start(bytes);
    for (const [uri, place] of [
      ['file:///etc/passwd', '/etc/passwd'],
      [server.url, server.origin],
    ] as const) {
      await assert.rejects(loader(folder).fetchAdapter(at(uri), never), (error) => {
        assert(error instanceof UserError);
        assert(error.message.includes(`an adapter is at ${place}, which is not among`));
        return true;
      });
    }
    assert.deepEqual(server.asked, []);
  });

  it('an adapter is fetched by a link, whose redirects must be allowed too', async () => {
    await using server = await FileServer.start(bytes);
    await using other = await FileServer.start(bytes);
    const allowed = loader(server.origin);
    server.mishaps = [server.breakAfter(1_000_000)];
    assert.deepEqual(await allowed.fetchAdapter(at(server.url), never), bytes);
    server.mishaps = [status(302, { location: other.url })];
    await assert.rejects(allowed.fetchAdapter(at(server.url), never), UserError);
    assert.deepEqual(other.asked, []);
    const both = loader(`${server.origin},${other.origin}`);
    server.mishaps = [status(302, { location: other.url })];
    assert.deepEqual(await both.fetchAdapter(at(server.url), never), bytes);
  });

  it('an expired link says when it expired and how it is renewed, without its signature', async () => {
    await using server = await FileServer.start(bytes);
    server.mishaps = [status(403)];
    const expired = at(server.url, { expiresAt: Date.UTC(2026, 0, 2, 3, 4, 5) });
    await assert.rejects(loader(server.origin).fetchAdapter(expired, never), (error: Error) => {
      assert(!(error instanceof PermanentError) && !(error instanceof UserError));
      assert.equal(
        error.message,
        `the adapter of policy version 3 is not loaded: ${server.origin} answered 403; the link expired at 2026-01-02T03:04:05.000Z. ` +
          'The learner publishes the version again with a new link before the old one expires; check that it runs, and the clocks of both machines',
      );
      return true;
    });
  });

  it('the loader waits for an adapter that is published on request, and reports one that does not exist as an error of the user', async () => {
    const awaited = manifest(3, { adapterOnRequest: true });
    await assert.rejects(loader('').fetchAdapter(awaited, never), AdapterAwaited);
    await assert.rejects(loader('').fetchAdapter(manifest(3), never), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /--sampler tinker/);
      return true;
    });
  });

  it('from a folder or a link, only the bytes of the digest are ever returned', async () => {
    const small = bytes.subarray(0, 500);
    const expected = { sha256: sha256(small), bytes: small.byteLength };
    await using server = await FileServer.start(small);
    const path = join(folder, 'any');
    const allowed = loader(`${folder},${server.origin}`);
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.uint8Array({ maxLength: 600 }),
          fc.uint8Array({ minLength: 500, maxLength: 500 }),
          fc.constant(small),
        ),
        async (content) => {
          await writeFile(path, content);
          server.file = content;
          for (const uri of [pathToFileURL(path).href, server.url]) {
            const found = await allowed
              .fetchAdapter(at(uri, expected), never)
              .catch(() => undefined);
            const isRight = Buffer.compare(content, small) === 0;
            assert.deepEqual(found, isRight ? new Uint8Array(small) : undefined);
          }
        },
      ),
      { numRuns: 30 },
    );
    await rm(path);
  });
});

describe('the shared folder of a learner', () => {
  it('a starting learner removes the drafts and adapters of a killed one, and nothing else', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-folder-'));
    try {
      const store = new AdapterFolderStore(folder, 'r');
      await store.open(new Set());
      const named = await store.put(1, { bytes: bytes.subarray(0, 9), ...scale });
      const orphan = await store.put(2, { bytes: bytes.subarray(0, 9), ...scale });
      const mine = join(folder, 'r');
      await writeFile(join(mine, 'adapter-3-0123456789abcdef.safetensors.draft-0a0b0c0d'), 'x');
      await writeFile(join(mine, 'notes.txt'), 'x');
      await new AdapterFolderStore(folder, 'another').put(1, { bytes, ...scale }).catch(() => 0);
      await store.open(new Set([named.uri]));
      assert.deepEqual(await readdir(mine), [named.uri.split('/').at(-1), 'notes.txt']);
      assert.notEqual(orphan.uri, named.uri);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('no file is deleted that a learner of the run has not written', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'offbeat-folder-'));
    try {
      await new AdapterFolderStore(folder, 'r').open(new Set());
      const name = 'adapter-3-0123456789abcdef.safetensors';
      const paths = [join(folder, name), join(folder, 'r', 'notes.txt')];
      for (const path of paths) {
        await writeFile(path, 'x');
        await deleteAdapterFile('r', { uri: pathToFileURL(path).href });
      }
      await deleteAdapterFile('r', { uri: `https://r/${name}` });
      assert.deepEqual((await readdir(folder)).sort(), [name, 'r']);
      assert.deepEqual(await readdir(join(folder, 'r')), ['notes.txt']);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  it('a folder that cannot be written is an error of the user, which names the setting', async () => {
    const file = join(await mkdtemp(join(tmpdir(), 'offbeat-folder-')), 'file');
    await writeFile(file, 'x');
    await assert.rejects(new AdapterFolderStore(file, 'r').open(new Set()), (error) => {
      assert(error instanceof UserError);
      assert.match(error.message, /adapters cannot be written to .*\/file\/r .*--adapter-store/);
      return true;
    });
    await rm(file);
  });
});
