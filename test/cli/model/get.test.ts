import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { modelFiles } from '../../../cli/model/model-files.js';
import { Origin, originText } from '../../../cli/model/origin.js';
import { loadModelRequest } from '../../../cli/model/request.js';
import { compareWith, take } from '../../../cli/model/sources.js';
import { packageRoot } from '../../../shared/base/package-root.js';
import { sha256 } from '../../../shared/base/bytes.js';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import type { Hub } from '../../../shared/service/hub/hub.js';
import { encodeGguf } from '../../support/gguf-writer.js';
import { type Answer, commit, HubServer, repository } from '../../support/hub-server.js';
import { runOffbeat } from '../../support/offbeat.js';
import { tinyGguf } from '../../support/tiny-gguf.js';
import { tinyModel } from '../../support/tiny-model.js';

/** The files of a small model, as a repository has them, among others. */
async function tinyRepository(): Promise<Record<string, Buffer>> {
  await using model = await tinyModel();
  const files: Record<string, Buffer> = {
    'README.md': Buffer.from('# Tiny'),
    'pytorch_model.bin': Buffer.alloc(10),
    'onnx/model.onnx': Buffer.alloc(10),
    LICENSE: Buffer.from('Do what you like.'),
  };
  for (const name of await readdir(model.path))
    files[name] = await readFile(join(model.path, name));
  return files;
}
const ofRepository = [
  'LICENSE',
  'config.json',
  'model.safetensors',
  'tokenizer.json',
  'tokenizer_config.json',
];
const hasFullDevice = { skip: !existsSync('/dev/full') };

describe('offbeat model get', { timeout: 120_000 }, () => {
  let folder: string;
  let out: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-get-'));
    out = join(folder, 'model');
  });
  afterEach(() => rm(folder, { recursive: true }));
  const offbeat = (...words: string[]) => runOffbeat(words, folder);
  const origin = async (at = out) =>
    Origin.parse(JSON.parse(await readFile(join(at, 'origin.json'), 'utf8')));

  describe('from the hub', () => {
    let server: HubServer;
    let reports: string[];
    let hub: Hub;
    beforeEach(async () => {
      server = await HubServer.start(await tinyRepository(), 'models');
      reports = [];
      const report = (line: string) => void reports.push(line);
      hub = { endpoint: server.url, wait: () => Promise.resolve(), report, stallMs: 10_000 };
      await mkdir(out);
    });
    afterEach(() => server[Symbol.asyncDispose]());

    const get = (revision = 'main') => take({ kind: 'hub', hub, repository, revision }, out);
    const weights = `/${repository}/resolve/${commit}/model.safetensors`;
    const fails =
      (status: number, headers = {}): Answer =>
      (_, response) =>
        response.writeHead(status, headers).end();

    it('a model of the hub is fetched by commit, with its license and checksums, and nothing else', async () => {
      server.card = {
        license: 'other',
        license_name: 'tiny',
        license_link: 'https://tiny.example',
      };
      await get('v1.0');
      assert.deepEqual((await readdir(out)).sort(), [...ofRepository, 'origin.json'].sort());
      const { source, license, files } = await origin();
      const { endpoint } = hub;
      assert.deepEqual(source, { kind: 'hub', endpoint, repository, revision: 'v1.0', commit });
      assert.deepEqual(license, { id: 'other', name: 'tiny', link: 'https://tiny.example' });
      assert.equal(
        files.find(({ path }) => path === 'model.safetensors')?.checksum,
        `sha256:${sha256(server.files.get('model.safetensors')!)}`,
      );
      assert.equal(server.asked[0], `/api/models/${repository}/revision/v1.0?blobs=true`);
      assert.match(server.asked[1]!, /\/config\.json$/);
      assert.equal(server.asked.at(-1), weights);
    });

    it('a broken download is continued by the next attempt, with the commit of the first', async () => {
      const bytes = server.files.get('model.safetensors')!;
      await get();
      await rm(join(out, 'model.safetensors'));
      // What a process leaves that was killed in the middle of the weights.
      await writeFile(join(out, 'model.safetensors.part-999999999'), bytes.subarray(0, 700));
      server.asked.length = 0;
      await get();
      assert.deepEqual(server.asked, [`${weights} bytes=700-`]);
      assert.deepEqual(await readFile(join(out, 'model.safetensors')), bytes);
    });

    it('weights with a wrong checksum are refused', async () => {
      const wrong: Answer = (request, response) => {
        const isWeights = request.url === weights;
        if (isWeights) response.end(Buffer.alloc(server.files.get('model.safetensors')!.length));
        else server.send(server.fileAt(request.url)!, request, response);
      };
      server.mishaps = [
        (_, response) => response.end(JSON.stringify(server.listing())),
        ...Array<Answer>(20).fill(wrong),
      ];
      await assert.rejects(get(), {
        name: 'UserError',
        message:
          /model\.safetensors has another checksum than sha256:.*\nThe same command continues/,
      });
      assert(!existsSync(join(out, 'model.safetensors')));
    });

    it('a model of another family is refused before its weights are fetched', async () => {
      server.files.set('config.json', Buffer.from('{"model_type": "gemma3"}'));
      await assert.rejects(get(), {
        name: 'UserError',
        message: /model_type is "gemma3": only qwen3/,
      });
      assert.equal(server.asked.length, 2);
    });

    it('a model that is missing, or not for all, is refused with the remedy', async () => {
      const refuses = async (status: number, headers: object, message: RegExp) => {
        server.mishaps = [fails(status, headers)];
        await assert.rejects(get(), { name: 'UserError', message });
      };
      await refuses(404, {}, /answered 404: there is no such repository, revision or file/);
      await refuses(401, {}, /answered 401: .*; set HF_TOKEN to a token that may read it/);
      await refuses(403, { 'x-error-code': 'GatedRepo' }, /accept them on its page.*HF_TOKEN/);
    });

    it('a model for which the disk is too small is refused before its weights are fetched', async () => {
      const huge = server.listing() as { siblings: { rfilename: string; size: number }[] };
      huge.siblings.find(({ rfilename }) => rfilename === 'model.safetensors')!.size = 2 ** 52;
      server.mishaps = [(_, response) => response.end(JSON.stringify(huge))];
      await assert.rejects(get(), /the model takes 4503599\.6 GB, but .* are free in .*--out/);
      assert.equal(server.asked.length, 1);
    });

    it('a disk that becomes full ends the command with the reason', hasFullDevice, async () => {
      await symlink('/dev/full', join(out, `model.safetensors.part-${process.pid}`));
      await writeFile(join(out, 'origin.json'), JSON.stringify(await originOf()));
      await assert.rejects(get(), { code: 'ENOSPC' });
    });

    /** The origin that the first attempt would write. */
    async function originOf(): Promise<Origin> {
      const elsewhere = join(folder, 'elsewhere');
      await mkdir(elsewhere);
      return take({ kind: 'hub', hub, repository, revision: 'main' }, elsewhere);
    }

    it('a partial download of another revision is not continued', async () => {
      await get('v1');
      await assert.rejects(get('v2'), /is a part of .* at v1 \(commit cccccccccccc\); delete it/);
      await get(commit); // the same content, named by its commit
    });

    it('the whole command prints what it has got and the commands of docs/real-models.md to type next, and downloads nothing twice', async () => {
      await rm(out, { recursive: true });
      server.card = { license: 'apache-2.0' };
      const words = ['model', 'get', repository, '--out', out, '--endpoint', server.url];
      const first = await offbeat(...words);
      assert.equal(first.code, 0, first.err);
      assert.match(
        first.out,
        /^.*model is Jiayi-Pan\/\S+ at main \(commit cccccccccccc\)\nlicense: apache-2\.0\n/,
      );
      assert.match(
        first.out,
        /ok {7}model: .*\nok {7}tokenizer: .*\n\nnext, on solutions .*:\n {2}npx offbeat sft --run warm /,
      );
      const page = await readFile(join(packageRoot, 'docs/real-models.md'), 'utf8');
      const printed = [...first.out.matchAll(/^ {2}(npx offbeat .*(?:sft|--from warm).*)$/gm)];
      assert.equal(printed.length, 2);
      for (const [, command] of printed) {
        const onPage = command!
          .replace(out, 'models/SmolLM2-135M-Instruct')
          .replace('npx offbeat up', 'npm start --');
        assert(page.includes(`\n${onPage}\n`), `docs/real-models.md does not have: ${onPage}`);
      }
      assert.deepEqual((await readdir(folder)).sort(), ['model']);
      assert.deepEqual((await readdir(out)).sort(), [...ofRepository, 'origin.json'].sort());

      const asked = server.asked.length;
      const again = await offbeat(...words);
      assert.equal(again.code, 0, again.err);
      assert.match(again.out, /model is already Jiayi-Pan\//);
      assert.equal(server.asked.length, asked);

      const other = await offbeat(...words, '--revision', 'v2');
      assert.equal(other.code, 2);
      assert.match(
        other.err,
        /model is Jiayi-Pan\/.* at main .*; name another --out, or delete it/,
      );

      await writeFile(join(out, 'tokenizer.json'), '{}');
      assert.match(
        (await offbeat(...words)).err,
        /tokenizer\.json has 2 bytes instead of \d+; delete/,
      );
    });
  });

  describe('from this machine', () => {
    it('a GGUF file becomes a model directory that the doctor accepts', async () => {
      const { metadata, tensors } = tinyGguf();
      const path = join(folder, 'tiny.gguf');
      await writeFile(path, encodeGguf(metadata, tensors));
      await writeFile(join(folder, 'LICENSE'), 'Do what you like.');
      const words = ['model', 'get', path, '--out', out];
      const first = await offbeat(...words);
      assert.equal(first.code, 0, first.err);
      assert.match(first.out, /tiny\.gguf in bf16\nlicense: apache-2\.0\nok {7}model: /);
      assert.match(first.out, /--prompt-style think --max-tokens 400/);
      const { source, formats, license } = await origin();
      const digest = sha256(await readFile(path));
      assert.deepEqual(source, { kind: 'gguf', path, sha256: digest, dtype: 'bf16' });
      assert.deepEqual([formats, license], [{ F32: 11 }, { id: 'apache-2.0' }]);
      assert.equal(await readFile(join(out, 'LICENSE'), 'utf8'), 'Do what you like.');

      assert.match((await offbeat(...words)).out, /is already .*tiny\.gguf in bf16/);
      assert.match((await offbeat(...words, '--dtype', 'fp32')).err, /in bf16; name another --out/);
      metadata['general.name'] = 'Other';
      await writeFile(path, encodeGguf(metadata, tensors));
      assert.match(
        (await offbeat(...words)).err,
        /changed since; name another --out, or delete it/,
      );
    });

    it('a copy of a directory that has changed since is refused, and one of the same files is not', async () => {
      await using model = await tinyModel();
      await mkdir(out);
      const wanted = { kind: 'directory', path: model.path } as const;
      const made = await take(wanted, out);
      assert.equal(await compareWith(wanted, out, made), 'same');
      const weights = join(model.path, 'model.safetensors');
      const bytes = await readFile(weights);
      const later = new Date(Date.now() + 60_000);
      await utimes(weights, later, later);
      assert.equal(await compareWith(wanted, out, made), 'same');
      bytes[bytes.length - 1]! ^= 1;
      await writeFile(weights, bytes);
      await utimes(weights, later, later);
      assert.equal(await compareWith(wanted, out, made), 'changed');
      await utimes(weights, later, later);
      bytes[bytes.length - 1]! ^= 1;
      await writeFile(weights, bytes);
      assert.equal(await compareWith(wanted, out, made), 'same');
      await writeFile(join(model.path, 'chat_template.jinja'), '');
      assert.equal(await compareWith(wanted, out, made), 'changed');
      const elsewhere = { ...wanted, path: folder };
      assert.equal(await compareWith(elsewhere, out, made), 'other');
    });

    it('a model directory is copied without the files of other programs', async () => {
      await using model = await tinyModel();
      await writeFile(join(model.path, 'notes.txt'), '');
      await mkdir(out);
      await take({ kind: 'directory', path: model.path }, out);
      assert((await readdir(out)).includes('origin.json'));
      assert(!(await readdir(out)).includes('notes.txt'));
      assert.equal((await readModelDirectory(out)).digest, model.digest);
    });

    it('a copy keeps the origin, the license and the checksums that the directory has', async () => {
      await using model = await tinyModel();
      const hub = { kind: 'hub', endpoint: 'https://hub.example', repository: 'Org/Tiny' } as const;
      const from = { ...hub, revision: 'main', commit: '0'.repeat(40) };
      const { size } = await stat(join(model.path, 'config.json'));
      const files = [
        { path: 'config.json', size, checksum: 'sha1:abc' },
        { path: 'model.safetensors', size: 1, checksum: 'sha1:of-another' },
      ];
      const license = { id: 'apache-2.0' };
      await writeFile(
        join(model.path, 'origin.json'),
        originText({ v: 1, source: from, license, files }),
      );
      await mkdir(out);
      const copied = await take({ kind: 'directory', path: model.path }, out);
      assert.deepEqual(copied.source, { kind: 'directory', path: model.path, from });
      assert.deepEqual(copied.license, license);
      assert.deepEqual(
        copied.files.filter(({ checksum }) => checksum !== undefined),
        [files[0]],
      );
      const again = join(out, 'again');
      await mkdir(again);
      const { source } = await take({ kind: 'directory', path: out }, again);
      assert.deepEqual(source, { kind: 'directory', path: out, from });
    });

    it('what an earlier attempt has left is replaced, and nothing else', async () => {
      await using model = await tinyModel();
      await mkdir(out);
      await writeFile(join(out, 'model-00001-of-00002.safetensors.part-7'), 'old');
      await take({ kind: 'directory', path: model.path }, out);
      assert(!(await readdir(out)).some((name) => name.includes('part')));
      await writeFile(join(out, 'thesis.tex'), 'dear');
      await assert.rejects(
        take({ kind: 'directory', path: model.path }, out),
        /thesis\.tex is not from/,
      );
      assert.equal(await readFile(join(out, 'thesis.tex'), 'utf8'), 'dear');
    });
  });

  describe('its words', () => {
    const load = (...words: string[]) => loadModelRequest(words, {});
    const refuses = (words: string[], message: RegExp) =>
      assert.rejects(load(...words), { name: 'UserError', message });

    it('a name is a path if that exists, and a repository of the hub otherwise', async () => {
      const { wanted, out: place } = await load('get', 'Qwen/Qwen3-0.6B', '--revision', 'v1');
      assert.equal(place, join('models', 'Qwen3-0.6B'));
      assert(wanted.kind === 'hub');
      assert.deepEqual([wanted.repository, wanted.revision], ['Qwen/Qwen3-0.6B', 'v1']);
      assert.equal(wanted.hub.endpoint, 'https://huggingface.co');
      const local = await load('get', embeddedModelPath);
      assert.deepEqual(local.wanted, { kind: 'directory', path: embeddedModelPath });
      assert.equal(local.out, join('models', basename(embeddedModelPath)));
      // As a shell completes it; what is downloaded lies beside it meanwhile.
      assert.equal((await load('get', 'Qwen/Qwen3-0.6B', '--out=models/q/')).out, 'models/q');
      assert.equal((await load('get', 'Qwen/Qwen3-0.6B', '--out=/')).out, '/');
      const path = join(folder, 'a.b.gguf');
      await writeFile(path, '');
      const { wanted: file, out: ofFile } = await load('get', path, '--dtype', 'fp32');
      assert.deepEqual(file, { kind: 'gguf', path, dtype: 'fp32' });
      assert.equal(ofFile, join('models', 'a.b'));
    });

    it('words that name no model are refused with what is expected', async () => {
      await refuses([], /an action is missing; offbeat model get NAME\|PATH is expected/);
      await refuses(['fetch', 'x/y'], /unknown action fetch/);
      await refuses(['get', '--out', 'x'], /get which model\? Give OWNER\/NAME/);
      await refuses(['get', 'no/such.gguf'], /there is no no\/such\.gguf; name an existing/);
      await refuses(['get', 'gpt2'], /there is no gpt2; .* as OWNER\/NAME/);
      await refuses(
        ['get', embeddedModelPath, '--revision', 'v1'],
        /--revision v1 is for models of the hub/,
      );
      await refuses(
        ['get', embeddedModelPath, '--endpoint', 'http://127.0.0.1:9'],
        /--endpoint http:\/\/127\.0\.0\.1:9 is for models of the hub/,
      );
      await refuses(['get', 'a/b', '--dtype', 'fp32'], /--dtype fp32 is for GGUF files/);
      await refuses(
        ['get', embeddedModelPath, '--out', embeddedModelPath],
        /is in .* already; check it/,
      );
    });
  });

  describe('its choice of files', () => {
    const base = ['tokenizer.json', 'config.json'];
    const refuses = (names: string[], message: RegExp) => {
      assert.throws(() => modelFiles(names, 'a/b'), { name: 'UserError', message });
    };

    it('the configuration is first and the weights are last, whole or in shards', () => {
      const shards = ['model-00002-of-00002.safetensors', 'model-00001-of-00002.safetensors'];
      const index = 'model.safetensors.index.json';
      assert.deepEqual(modelFiles([...shards, index, ...base, 'consolidated.safetensors'], 'a/b'), [
        'config.json',
        'tokenizer.json',
        index,
        ...shards.toReversed(),
      ]);
      const whole = [...base, 'model.safetensors', 'LICENSE.txt', 'x/LICENSE', index, ...shards];
      assert.deepEqual(modelFiles(whole, 'a/b'), [
        'config.json',
        'LICENSE.txt',
        'tokenizer.json',
        'model.safetensors',
      ]);
    });

    it('a repository without safetensors is refused with what it has', () => {
      refuses(
        [...base, 'pytorch_model.bin'],
        /a\/b has no weights as safetensors; choose a model in/,
      );
      refuses(['x-Q4_0.gguf'], /has no config\.json; download its x-Q4_0\.gguf and name that file/);
      refuses(['config.json', 'model.safetensors'], /has no tokenizer\.json; load its tokenizer/);
    });
  });
});
