import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import fc from 'fast-check';
import { pack } from 'tar-stream';
import { PermanentError, UserError } from '../../../shared/base/errors.js';
import { AdapterOutOfReach, BadAnswer } from '../../../shared/tinker/errors.js';
import { fuzzRuns, mutationsOf } from '../../support/mutations.js';
import { connectTo, ScriptedServer } from './scripted-server.js';

const path = 'tinker://run-1/sampler_weights/step-2';
const archive = 'training_runs/run-1/checkpoints/sampler_weights/step-2/archive';
const weights = Buffer.from('the weights');
const config = { peft_type: 'LORA', r: 8, lora_alpha: 16, use_rslora: false, rank_pattern: {} };
const expected = { adapter: weights, rank: 8, alpha: 16 };
const plain = {
  'adapter_model.safetensors': weights,
  'adapter_config.json': JSON.stringify(config),
};

describe('downloading an adapter', () => {
  it('the download follows a redirect to a tar on the same server, with the key', async () => {
    await using server = await ScriptedServer.start();
    const bytes = await tarOf({ ...plain, 'README.md': 'hello' });
    const location = '/api/v1/tars/step-2'; // relative to the request
    server.script(`GET ${archive}`, { status: 302, headers: { location } });
    server.script('GET tars/step-2', { bytes, type: 'application/x-tar' });
    const { client } = await connectTo(server);
    await using _closed = client;
    assert.deepEqual(await client.downloadAdapter(path), expected);
    assert.equal(server.sent('tars/step-2')[0]!.headers['x-api-key'], 'tml-test');
  });

  it('the download waits while the archive is being built, and sends the key to no other host', async () => {
    await using server = await ScriptedServer.start();
    await using storage = await ScriptedServer.start();
    const bytes = await tarOf({
      './adapter/adapter_model.safetensors': weights,
      './adapter/adapter_config.json': JSON.stringify(config),
    });
    storage.script('GET signed', 'cut', { bytes, type: 'application/octet-stream' });
    server.script(
      `GET ${archive}`,
      { status: 503, json: { detail: 'building' }, headers: { 'retry-after': '30' } },
      { json: { url: `${storage.url}/api/v1/signed?sig=secret`, expires: '2026-01-01T00:00:00Z' } },
    );
    const { client, time } = await connectTo(server);
    await using _closed = client;
    assert.deepEqual(await client.downloadAdapter(path), expected);
    assert.equal(time.slept[0], 30_000);
    assert.equal(storage.seen.length, 2);
    assert(storage.seen.every(({ headers }) => headers['x-api-key'] === undefined));
  });

  it('the download keeps the signature of a URL out of the error', async () => {
    await using server = await ScriptedServer.start();
    await using storage = await ScriptedServer.start();
    storage.script('GET signed', { status: 403, bytes: 'expired', type: 'text/plain' });
    const url = `${storage.url}/api/v1/signed?sig=secret`;
    server.script(`GET ${archive}`, { json: { url } });
    const { client } = await connectTo(server);
    await using _closed = client;
    await assert.rejects(client.downloadAdapter(path), (error) => {
      assert(error instanceof Error && /403: expired/.test(error.message));
      assert(!error.message.includes('secret'));
      return true;
    });
  });

  it('the download returns an adapter or throws a PermanentError, whatever bytes the archive has', async () => {
    await using server = await ScriptedServer.start();
    const { client } = await connectTo(server);
    await using _closed = client;
    const good = [await tarOf(plain), await tarOf({ ...plain, 'README.md': 'hello' })];
    await fc.assert(
      fc.asyncProperty(mutationsOf(good), async (bytes) => {
        server.script(`GET ${archive}`, { status: 302, headers: { location: '/api/v1/tar' } });
        server.script('GET tar', { bytes, type: 'application/x-tar' });
        try {
          const { rank, alpha } = await client.downloadAdapter(path);
          assert(Number.isInteger(rank) && rank > 0 && alpha > 0);
        } catch (caught) {
          assert(caught instanceof PermanentError, String(caught));
        }
      }),
      { numRuns: Math.ceil(fuzzRuns / 3) },
    );
  });

  const broken: [string, Promise<Uint8Array>, RegExp][] = [
    ['no tar', Promise.resolve(Buffer.alloc(2048, 'x')), /not a tar archive/],
    ['a tar cut short', tarOf(plain).then((tar) => tar.subarray(0, 700)), /not a tar archive/],
    [
      'a tar without weights',
      tarOf({ 'adapter_config.json': '{}' }),
      /holds no adapter_model.safetensors/,
    ],
    [
      'a file twice',
      tarOf({ ...plain, 'x/adapter_config.json': '{}' }),
      /holds adapter_config.json twice/,
    ],
    [
      'a path that climbs',
      tarOf({ ...plain, '../../adapter_config.json': '{}' }),
      /an entry is named \.\.\//,
    ],
    [
      'a configuration beyond any size',
      tarOf({ 'adapter_config.json': ' '.repeat(2 ** 20 + 1) }),
      /adapter_config.json has 1048577 bytes, more than 1048576/,
    ],
  ];
  for (const [name, bytes, complaint] of broken) {
    it(`the download refuses ${name}`, async () => {
      await using server = await ScriptedServer.start();
      server.script(`GET ${archive}`, { status: 302, headers: { location: '/api/v1/tar' } });
      server.script('GET tar', { bytes: await bytes, type: 'application/x-tar' });
      const { client } = await connectTo(server);
      await using _closed = client;
      await assert.rejects(
        client.downloadAdapter(path),
        (error) => error instanceof BadAnswer && complaint.test(error.message),
      );
    });
  }

  for (const [name, change, complaint] of [
    ['rank-stabilized scaling', { use_rslora: true }, /not plain LoRA: use_rslora/],
    ['a separate rank for a layer', { rank_pattern: { q: 4 } }, /rank_pattern/],
    ['no rank', { r: undefined }, /: r: /],
  ] as const) {
    it(`the download refuses an adapter with ${name}`, async () => {
      await using server = await ScriptedServer.start();
      const text = JSON.stringify({ ...config, ...change });
      const bytes = await tarOf({ ...plain, 'adapter_config.json': text });
      server.script(`GET ${archive}`, { status: 302, headers: { location: '/api/v1/tar' } });
      server.script('GET tar', { bytes, type: 'application/x-tar' });
      const { client } = await connectTo(server);
      await using _closed = client;
      await assert.rejects(
        client.downloadAdapter(path),
        (error) => error instanceof PermanentError && complaint.test(error.message),
      );
    });
  }
});

describe('an adapter on the disk of the server, as with TuFT', () => {
  it("an adapter on the server's disk is read at the path that the server gives", async () => {
    await using disk = await checkpointDisk();
    await using server = await ScriptedServer.start();
    server.script(`GET ${archive}`, fileRedirect(join(disk.root, 'run-1', 'step-2')));
    const { client } = await connectTo(server);
    await using _closed = client;
    assert.deepEqual(await client.downloadAdapter(path), expected);
  });

  it("an adapter on the server's disk is read at the path where the disk is mounted", async () => {
    await using disk = await checkpointDisk();
    await using server = await ScriptedServer.start();
    server.script(`GET ${archive}`, fileRedirect('/there/run-1/step-2'));
    const { client } = await connectTo(server, { checkpointDir: disk.root });
    await using _closed = client;
    assert.deepEqual(await client.downloadAdapter(path), expected);
  });

  for (const [name, location] of [
    ['a disk that is not here', 'file:///there/run-1/step-2'],
    ['another host', 'file://elsewhere/run-1/step-2'],
    ['another checkpoint', 'file:///there/run-1/step-3'],
    ['a private scheme', 's3://bucket/run-1/step-2'],
  ] as const) {
    it(`an adapter on the server's disk cannot be read on ${name}, and the error names the remedy`, async () => {
      await using server = await ScriptedServer.start();
      server.script(`GET ${archive}`, { status: 302, headers: { location } });
      const { client } = await connectTo(server);
      await using _closed = client;
      await assert.rejects(
        client.downloadAdapter(path),
        (error) => error instanceof AdapterOutOfReach && error instanceof UserError,
      );
    });
  }
});

async function tarOf(files: Record<string, string | Buffer>): Promise<Buffer> {
  const tar = pack();
  for (const [name, content] of Object.entries(files)) tar.entry({ name }, content);
  tar.finalize();
  const parts: Buffer[] = [];
  for await (const part of tar) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

function fileRedirect(directory: string) {
  return { status: 302, headers: { location: pathToFileURL(directory).href } };
}

/** A checkpoint directory with the one checkpoint, laid out as TuFT does. */
async function checkpointDisk(): Promise<AsyncDisposable & { root: string }> {
  const root = await mkdtemp(join(tmpdir(), 'offbeat-checkpoints-'));
  const folder = join(root, 'run-1', 'step-2', 'adapter');
  await mkdir(folder, { recursive: true });
  for (const [name, content] of Object.entries(plain)) await writeFile(join(folder, name), content);
  return { root, [Symbol.asyncDispose]: () => rm(root, { recursive: true }) };
}
