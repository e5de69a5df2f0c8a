import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { dataSpec, readData, type DataSpec } from '../../../shared/tasks/data/data.js';
import type { DatasetHub } from '../../../shared/tasks/data/dataset-hub.js';
import { commit, HubServer, repository, type Answer } from '../../support/hub-server.js';
import { until } from '../../support/waiting.js';

const golden = fileURLToPath(new URL('../../../../test/shared/tasks/golden/', import.meta.url));
const train = await readFile(join(golden, 'snappy.parquet'));
const path = 'data/train-00000-of-00001.parquet';
const rows = [
  { nums: [44, 19, 35], target: 98 },
  { nums: [63, 95, 96], target: 64 },
  { nums: [49, 16, 50, 1], target: 20 },
  { nums: [3, 7, 21], target: 84 },
];
const Row = z.object({ nums: z.array(z.int()), target: z.int() });

/** Linux has a device whose disk is always full. */
const hasFullDevice = { skip: !existsSync('/dev/full') };

describe('a dataset on the hub', { timeout: 60_000 }, () => {
  let folder: string;
  let server: HubServer;
  let waits: number[];
  let reports: string[];
  let hub: DatasetHub;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-hub-'));
    server = await HubServer.start({ 'README.md': Buffer.from('# Countdown'), [path]: train });
    waits = [];
    reports = [];
    const wait = (ms: number) => Promise.resolve(waits.push(ms));
    const report = (line: string) => void reports.push(line);
    hub = { endpoint: server.url, folder, wait, report, stallMs: 10_000 };
  });
  afterEach(async () => {
    await server[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  const specOf = (dataset = repository) => dataSpec(dataset, { seed: 0, testSize: 1 }, hub);
  const read = (spec: DataSpec) =>
    readData(spec, (row) => Row.parse(row), { nums: [3, 7, 21], target: 84 }, hub);
  /** Asks for the list of files as ever, and for a file with mishaps. */
  const readDespite = async (...mishaps: Answer[]) => {
    const spec = await specOf();
    server.asked.length = 0;
    server.mishaps = mishaps;
    return read(spec);
  };
  const file = `/datasets/${repository}/resolve/${commit}/${path}`;
  const place = () => join(folder, repository, commit, path);

  it('a dataset on the hub consists of the files of its train split, by commit and checksum', async () => {
    const spec = await specOf();
    assert.deepEqual(
      { ...spec, files: [] },
      {
        ...{ kind: 'hub', repository, commit, files: [], seed: 0, testSize: 1 },
      },
    );
    assert(spec.kind === 'hub');
    assert.deepEqual(
      spec.files.map((one) => [one.path, one.size]),
      [[path, train.byteLength]],
    );
    assert.deepEqual(await read(spec), rows);
  });

  it('a dataset on the hub is downloaded once', async () => {
    const spec = await specOf();
    await read(spec);
    assert.deepEqual(await read(spec), rows);
    assert.deepEqual(server.asked, [`/api/datasets/${repository}/revision/main?blobs=true`, file]);
    assert.deepEqual(await readdir(dirname(place())), ['train-00000-of-00001.parquet']);
  });

  it('an empty file of the hub is created like the others', async () => {
    server.files.set('data/train-empty.jsonl', Buffer.alloc(0));
    const spec = await specOf(`${repository}:data/train-empty.jsonl`);
    assert.deepEqual(await read(spec), []);
    assert.deepEqual(await readFile(join(dirname(place()), 'train-empty.jsonl'), 'utf8'), '');
    assert.deepEqual(await read(spec), []);
    assert.equal(server.asked.length, 2); // for the list and the file
  });

  it('a dataset on the hub may be given with a revision and a file', async () => {
    const more = Buffer.from('nums,target\n3 7 21,84\n');
    server.files.set('more/test.csv', more);
    const spec = await specOf(`${repository}@v1.0/x:more/test.csv`);
    assert.match(server.asked[0]!, /revision\/v1\.0%2Fx\?/);
    assert.deepEqual(await read(spec), [rows[3]]); // git's checksum, as of all small files
  });

  it('a dataset on the hub may have its train split in several files', async () => {
    server.files.set('data/train-00001-of-00002.csv', Buffer.from('nums,target\n1 2,3\n'));
    await assert.rejects(specOf(), /has several files; name one/); // not of one kind
    server.files.clear();
    server.files.set('b/train-1.jsonl', Buffer.from('{"nums":[1,2],"target":3}\n'));
    server.files.set('b/train-0.jsonl', Buffer.from('{"nums":[4,5],"target":9}\n'));
    assert.deepEqual(
      (await read(await specOf())).map(({ target }) => target),
      [9, 3],
    );
    server.files.set('b/train_socratic.jsonl', Buffer.from('{"nums":[1,2],"target":3}\n'));
    await assert.rejects(specOf(), /several files; name one of them:[^]*b\/train_socratic\.jsonl/);
  });

  it('a file on this machine is not looked for on the hub, even if its kind is unknown', async () => {
    const here = join(folder, 'here');
    await mkdir(here);
    await writeFile(join(here, 'problems.json'), '[]');
    const before = process.cwd();
    process.chdir(folder);
    try {
      await assert.rejects(specOf('here/problems.json'), {
        name: 'UserError',
        message: /unknown kind/,
      });
    } finally {
      process.chdir(before);
    }
    assert.deepEqual(server.asked, []);
  });

  it('a dataset on the hub with several possible files is refused, and the files are named', async () => {
    server.files.clear();
    for (const name of ['main/train.parquet', 'socratic/train.parquet'])
      server.files.set(name, train);
    await assert.rejects(specOf(), {
      name: 'UserError',
      message: /several files; name one of them:\n {2}- .*:main\/train\.parquet\n {2}- .*:socratic/,
    });
    assert.equal((await specOf(`${repository}:main/train.parquet`)).kind, 'hub');
    await assert.rejects(specOf(`${repository}:none.csv`), /:none\.csv is none of its files/);
  });

  /** Ends the connection once 700 bytes are on the disk: what is still under way then is lost. */
  const cut: Answer = (request, response) => {
    response.writeHead(200, { 'content-length': train.byteLength });
    response.write(train.subarray(0, 700));
    const part = `${place()}.part-${process.pid}`;
    const isWritten = () =>
      stat(part).then(
        ({ size }) => size === 700,
        () => false,
      );
    void until(isWritten).then(() => request.socket.destroy());
  };
  const fails =
    (status: number): Answer =>
    (_, response) =>
      response.writeHead(status).end();

  it('a download is resumed where a transfer was cut', async () => {
    assert.deepEqual(await readDespite(cut), rows);
    assert.deepEqual(server.asked, [file, `${file} bytes=700-`]);
    assert.deepEqual(waits, [1_000]);
  });

  it('a download is resumed from the partial file of an ended process', async () => {
    const spec = await specOf();
    await mkdir(dirname(place()), { recursive: true });
    await writeFile(`${place()}.part-999999999`, train.subarray(0, 900));
    assert.deepEqual(await read(spec), rows);
    assert.equal(server.asked.at(-1), `${file} bytes=900-`);
  });

  it('a download starts again if the server supports no ranges or refuses this one', async () => {
    const whole: Answer = (_, response) => response.end(train);
    assert.deepEqual(await readDespite(cut, whole), rows);
    await rm(place());
    assert.deepEqual(await readDespite(cut, fails(416)), rows);
    assert.deepEqual(server.asked, [file, `${file} bytes=700-`, file]);
  });

  it('a download starts again if the server sends another range than was requested', async () => {
    const other: Answer = (_, response) =>
      response.writeHead(206, { 'content-range': 'bytes 0-9/10' }).end('0123456789');
    assert.deepEqual(await readDespite(cut, other), rows);
  });

  it('a download is repeated if its checksum or length is wrong', async () => {
    const wrong: Answer = (_, response) => response.end(Buffer.alloc(train.byteLength, 'x'));
    const long: Answer = (_, response) => response.end(Buffer.concat([train, train]));
    assert.deepEqual(await readDespite(wrong, long), rows);
    await rm(place());
    await assert.rejects(readDespite(...Array.from({ length: 6 }, () => wrong)), {
      name: 'UserError',
      message:
        /has another checksum than sha256:[0-9a-f]{64}\.\nYou can use a local copy: .*--dataset /,
    });
    assert.equal(server.asked.length, 6);
    assert.deepEqual(await readdir(dirname(place())), []);
  });

  it('a download is repeated after growing pauses while the hub cannot serve it, a limited number of times', async () => {
    assert.deepEqual(await readDespite(fails(503), fails(429), fails(500)), rows);
    assert.deepEqual(waits, [1_000, 2_000, 4_000]);
    assert.match(reports[1]!, / answered 429; trying again in 2 s \(attempt 3 of 6\)$/);
    await rm(place());
    await assert.rejects(
      readDespite(...Array.from({ length: 6 }, () => fails(503))),
      /answered 503/,
    );
  });

  it('a download that stalls is abandoned and requested again', async () => {
    hub = { ...hub, stallMs: 200 };
    const silent: Answer = (_, response) => response.writeHead(200).write(train.subarray(0, 10));
    assert.deepEqual(await readDespite(silent), rows);
    assert.equal(server.asked.at(-1), `${file} bytes=10-`);
  });

  it('a dataset that does not exist is refused at once', async () => {
    await assert.rejects(specOf('no/such'), {
      name: 'UserError',
      message: /cannot fetch the dataset no\/such: .* answered 404.*\nYou can use a local copy/,
    });
    assert.deepEqual(waits, []);
  });

  it('a restricted dataset is refused without a token, and requested with it', async () => {
    server.mishaps = [fails(401)];
    await assert.rejects(specOf(), /answered 401: .*set HF_TOKEN to a token that may read it/);
    server.mishaps = [fails(403)];
    hub = { ...hub, token: 'hf_secret' };
    await assert.rejects(specOf(), (error: Error) => {
      assert.match(error.message, /HF_TOKEN may not read it/);
      return !error.message.includes('hf_secret');
    });
    assert.deepEqual(server.tokens, [undefined, 'Bearer hf_secret']);
  });

  it('a dataset whose owner asks for consent is refused with the place where to give it', async () => {
    server.mishaps = [
      (_, response) => response.writeHead(403, { 'x-error-code': 'GatedRepo' }).end(),
    ];
    await assert.rejects(
      specOf(),
      /answered 403: its owner asks for consent to terms; accept them/,
    );
  });

  it('a download ends at once, with the reason, when the disk is full', hasFullDevice, async () => {
    const spec = await specOf();
    await mkdir(dirname(place()), { recursive: true });
    await symlink('/dev/full', `${place()}.part-${process.pid}`);
    await assert.rejects(read(spec), { code: 'ENOSPC' });
    assert.deepEqual(waits, []);
  });

  it('a download follows a redirect of the hub to its storage, without the token', async () => {
    await using store = await HubServer.start({ [path]: train });
    hub = { ...hub, token: 'hf_secret' };
    const elsewhere: Answer = (_, response) =>
      response.writeHead(302, { location: `${store.url}${file}` }).end();
    assert.deepEqual(await readDespite(elsewhere), rows);
    assert.deepEqual([store.asked, store.tokens], [[file], [undefined]]);
  });

  it('a downloaded dataset is read from this machine while the hub is away', async () => {
    await read(await specOf());
    hub = { ...hub, endpoint: 'http://127.0.0.1:9' };
    assert.deepEqual(await read(await specOf()), rows);
    await assert.rejects(specOf('another/dataset'), {
      name: 'UserError',
      message: /127\.0\.0\.1:9\/.* does not answer \(.*\)\.\nYou can use a local copy/,
    });
  });

  it('a downloaded dataset is refused if its file was replaced by another', async () => {
    const spec = await specOf();
    await read(spec);
    await writeFile(place(), 'something else');
    await assert.rejects(read(spec), /is not the file that the hub has there; delete it/);
  });

  it('a dataset cannot name a path outside its folder', async () => {
    server.files.set('../../train.csv', Buffer.from('nums,target\n1 2,3\n'));
    await assert.rejects(specOf(), /list of the files of .* is not understood .*HF_ENDPOINT/);
  });
});
