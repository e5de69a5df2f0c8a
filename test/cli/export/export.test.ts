import assert from 'node:assert/strict';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { BinaryReader } from '@bufbuild/protobuf/wire';
import { eventFile } from '../../../cli/export/tensorboard.js';
import { csvLines, inBlocks, wandbHistory } from '../../../cli/export/text-formats.js';
import { readJournal, stepRow, type StepRow } from '../../../cli/read-journal.js';
import { runOffbeat } from '../../support/offbeat.js';

const beganAt = Date.parse('2026-11-21T10:00:00.000Z');
const rows: readonly StepRow[] = [
  { step: 1, version: 1, at: beganAt, metrics: { 'env/all/correct': 0.25, seconds: 3 } },
  { step: 2, version: 2, at: beganAt + 3_500, metrics: { 'env/all/correct': 0.5, 'eval/a"b': 1 } },
];
const jsonl = rows
  .map(({ step, version, at, metrics }) =>
    JSON.stringify({ step, version, time: new Date(at).toISOString(), ...metrics }),
  )
  .join('\n');

/** CRC-32C (Castagnoli), bit by bit. */
function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0x82f63b78 : 0);
  }
  return ~crc >>> 0;
}

/** The records of an event file, their checksums looked at. */
function recordsIn(file: Uint8Array): Uint8Array[] {
  const bytes = Buffer.from(file);
  const unmasked = (crc: number) => {
    const rotated = (crc - 0xa282ead8) >>> 0;
    return ((rotated >>> 17) | (rotated << 15)) >>> 0;
  };
  const records: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = Number(bytes.readBigUInt64LE(at));
    assert.equal(unmasked(bytes.readUInt32LE(at + 8)), crc32c(bytes.subarray(at, at + 8)));
    const data = bytes.subarray(at + 12, at + 12 + length);
    assert.equal(unmasked(bytes.readUInt32LE(at + 12 + length)), crc32c(data));
    records.push(data);
    at += 16 + length;
  }
  return records;
}

/** The fields of a message by their numbers, as far as events have them. */
function fieldsOf(bytes: Uint8Array): [field: number, value: unknown][] {
  const reader = new BinaryReader(bytes);
  const fields: [number, unknown][] = [];
  while (reader.pos < reader.len) {
    const [field, type] = reader.tag();
    const read = [() => reader.int64(), () => reader.double(), () => reader.bytes()][type];
    fields.push([field, read === undefined ? reader.float() : read()]);
  }
  return fields;
}

describe('an event file of TensorBoard', () => {
  it('an event file of TensorBoard has checksums that a second implementation of RFC 3720 agrees with', () => {
    assert.equal(recordsIn(eventFile(rows)).length, 3);
    // Appendix B.4: 32 bytes of zeros, of ones, and rising.
    assert.equal(crc32c(new Uint8Array(32)), 0x8a9136aa);
    assert.equal(crc32c(new Uint8Array(32).fill(0xff)), 0x62a8ab43);
    assert.equal(crc32c(Uint8Array.from({ length: 32 }, (_, i) => i)), 0x46dd794e);
  });

  it('an event file of TensorBoard begins with its version and has an event per step and a scalar per metric', () => {
    const [version, first, second, ...more] = recordsIn(eventFile(rows)).map(fieldsOf);
    assert.equal(more.length, 0);
    assert.deepEqual(version, [
      [1, beganAt / 1_000],
      [3, Buffer.from('brain.Event:2')],
    ]);
    assert.deepEqual(first?.slice(0, 2), [
      [1, beganAt / 1_000],
      [2, 1n],
    ]);
    const [field, summary] = second!.at(-1)!;
    assert.equal(field, 5);
    const values = fieldsOf(summary as Uint8Array).map(([, value]) =>
      fieldsOf(value as Uint8Array),
    );
    assert.deepEqual(values, [
      [
        [1, Buffer.from('env/all/correct')],
        [2, 0.5],
      ],
      [
        [1, Buffer.from('eval/a"b')],
        [2, 1],
      ],
    ]);
  });

  it('an event file of TensorBoard equals the one that TensorBoard itself has read', async () => {
    // test/compat reads this file with TensorBoard's own reader.
    const golden = new URL('../../../../test/cli/export/golden.tfevents', import.meta.url);
    assert.deepEqual(Buffer.from(eventFile(rows)), await readFile(golden));
  });
});

describe('the CSV and JSON formats', () => {
  it('the CSV format has every column that any step has', () => {
    assert.equal(
      [...csvLines(rows)].join(''),
      'step,version,time,env/all/correct,seconds,"eval/a""b"\r\n' +
        '1,1,2026-11-21T10:00:00.000Z,0.25,3,\r\n2,2,2026-11-21T10:00:03.500Z,0.5,,1\r\n',
    );
  });

  it('the JSON lines use the names of Weights & Biases for step and time', () => {
    const [, last] = wandbHistory(rows);
    assert.deepEqual(JSON.parse(last!), {
      ...{ _step: 2, _timestamp: beganAt / 1_000 + 3.5, _runtime: 3.5 },
      ...{ version: 2, 'env/all/correct': 0.5, 'eval/a"b': 1 },
    });
  });

  it('the lines of a long run are written in blocks, since together they may be longer than a string can be', () => {
    const lines = Array.from({ length: 5 }, (_, i) => String(i).repeat(500_000));
    const blocks = [...inBlocks(lines)];
    assert.deepEqual(
      blocks.map(({ length }) => length),
      [1_500_000, 1_000_000],
    );
    assert.equal(blocks.join(''), lines.join(''));
    assert.deepEqual([...inBlocks([])].join(''), '');
  });
});

describe('offbeat export', { timeout: 120_000 }, () => {
  let folder: string;
  let run: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-export-'));
    run = join(folder, 'runs', 'demo');
    await mkdir(run, { recursive: true });
    await writeFile(join(run, 'metrics.jsonl'), `${jsonl}\n{"step":3,"ver`);
    await writeFile(join(run, 'config.json'), '{"seed":1}\n');
  });
  after(() => rm(folder, { recursive: true }));
  const exported = (...words: string[]) => runOffbeat(['export', '--run=demo', ...words], folder);

  it('offbeat export leaves out a line that is not complete yet', async () => {
    assert.deepEqual(await readJournal(run, 'metrics.jsonl', stepRow), rows);
  });

  it('offbeat export writes each format, into the run or to another path', async () => {
    const { code, out } = await exported('--format=tensorboard');
    assert.equal(code, 0);
    const name = `events.out.tfevents.${beganAt / 1_000}.offbeat`;
    assert.match(out, new RegExp(`^2 steps in .*/exports/tensorboard/${name}\n$`));
    const events = await readFile(join(run, 'exports', 'tensorboard', name));
    assert.deepEqual(events, Buffer.from(eventFile(rows)));
    const elsewhere = join(folder, 'elsewhere');
    assert.equal((await exported('--format=wandb', `--out=${elsewhere}`)).code, 0);
    const history = [...wandbHistory(rows)].join('');
    assert.equal(await readFile(join(elsewhere, 'history.jsonl'), 'utf8'), history);
    assert.equal(await readFile(join(elsewhere, 'config.json'), 'utf8'), '{"seed":1}\n');
    assert.equal((await exported('--format=csv', `--out=${elsewhere}`)).code, 0);
    const csv = [...csvLines(rows)].join('');
    assert.equal(await readFile(join(elsewhere, 'metrics.csv'), 'utf8'), csv);
  });

  it('a later export replaces the event file whose first step was trained again, in the folder of the run', async () => {
    const again = join(folder, 'runs', 'again');
    await cp(run, again, { recursive: true });
    const first = { step: 1, version: 1, time: new Date(beganAt + 60_000).toISOString() };
    await writeFile(join(again, 'metrics.jsonl'), `${JSON.stringify(first)}\n`);
    const exportAgain = async (...words: string[]) => {
      const flags = ['export', '--run=again', '--format=tensorboard', ...words];
      const { code, err } = await runOffbeat(flags, folder);
      assert.equal(code, 0, err);
    };
    const own = join(again, 'exports', 'tensorboard');
    await mkdir(own, { recursive: true });
    const stale = 'events.out.tfevents.1.offbeat';
    await writeFile(join(own, stale), '');
    await exportAgain();
    const name = `events.out.tfevents.${beganAt / 1_000 + 60}.offbeat`;
    assert.deepEqual(await readdir(own), [name]);

    const shared = join(folder, 'shared'); // with the exports of other runs
    await mkdir(shared);
    await writeFile(join(shared, stale), '');
    await exportAgain(`--out=${shared}`);
    assert.deepEqual((await readdir(shared)).sort(), [stale, name]);
  });

  it('an export for wandb names the configuration that is missing', async () => {
    const bare = join(folder, 'runs', 'bare');
    await mkdir(bare, { recursive: true });
    await cp(join(run, 'metrics.jsonl'), join(bare, 'metrics.jsonl'));
    const { code, err } = await runOffbeat(['export', '--run=bare', '--format=wandb'], folder);
    assert.equal(code, 2);
    assert.match(err, /cannot read .*bare\/config\.json .*; copy it there, or choose --format csv/);
  });

  it('offbeat export names the mistake in its flags', async () => {
    const unknown = await runOffbeat(['export', '--run=demoo', '--format=csv'], folder);
    assert.deepEqual([unknown.code, /did you mean demo\?/.test(unknown.err)], [2, true]);
    await cp(run, join(folder, 'runs', 'broken'), { recursive: true });
    await writeFile(join(folder, 'runs', 'broken', 'metrics.jsonl'), '{"step":"one"}\n');
    const broken = await runOffbeat(['export', '--run=broken', '--format=csv'], folder);
    assert.match(broken.err, /metrics\.jsonl:1 is not a line of a metrics\.jsonl/);
    assert.match((await exported('--format=excel')).err, /--format .* is "excel"/);
    const inTheWay = await exported('--format=csv', `--out=${join(run, 'config.json')}`);
    assert.match(inTheWay.err, /^.*config\.json is not a folder .*; name another with --out\n$/);
  });
});
