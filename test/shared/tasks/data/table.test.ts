import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { readRows, tableSpec } from '../../../../shared/tasks/data/table.js';

const golden = fileURLToPath(new URL('../../../../../test/shared/tasks/golden/', import.meta.url));
const example = { nums: [3, 7, 21], target: 84 };
const Row = z.object({ nums: z.array(z.int()), target: z.int() });
const rowOf = (row: unknown) => Row.parse(row);
const rows = [
  { nums: [44, 19, 35], target: 98 },
  { nums: [63, 95, 96], target: 64 },
  { nums: [49, 16, 50, 1], target: 20 },
  { nums: [3, 7, 21], target: 84 },
];

let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'offbeat-table-'));
});
after(() => rm(folder, { recursive: true }));
const specOf = (path: string) => tableSpec(path, { seed: 0, testSize: 1 });
const readText = async (name: string, text: string | Buffer) => {
  const path = join(folder, name);
  await writeFile(path, text);
  return readRows(specOf(path), rowOf, example);
};

describe('a parquet file', () => {
  for (const compression of ['none', 'snappy', 'gzip', 'zstd']) {
    it(`a parquet file with ${compression} compression is read in row groups`, async () => {
      const path = join(golden, `${compression}.parquet`);
      assert.deepEqual(await readRows(specOf(path), rowOf, example), rows);
    });
  }

  it('a parquet file is refused if it lacks a column or is not parquet', async () => {
    const path = join(golden, 'zstd.parquet');
    await assert.rejects(readRows(specOf(path), rowOf, { question: '' }), {
      name: 'UserError',
      message: /zstd\.parquet \(parquet column not found: question\); .*with the columns question/,
    });
    await assert.rejects(readText('a.parquet', 'PAR1, or so it says'), {
      name: 'UserError',
      message:
        /cannot read the problems in .*a\.parquet .*give a parquet file with .*nums and target/,
    });
  });

  it('a parquet file is refused whatever error its reader ends with', async () => {
    const broken = async (change: (file: Buffer) => void) => {
      const file = await readFile(join(golden, 'none.parquet'));
      change(file);
      return readText('broken.parquet', file);
    };
    const twice = broken((file) => {
      file[4] = 0xff; // the header of the first column's first page
      file.write('l_st', file.lastIndexOf('list')); // a column's path, which the schema has not
    });
    await assert.rejects(twice, { name: 'UserError', message: /element not found: nums,l_st/ });
    const fatal = broken((file) => {
      file.set([0x9e, 0xf3, 0xfc, 0xd4], 288); // a run's length: a hundred million repetitions
    });
    await assert.rejects(fatal, {
      name: 'UserError',
      message: /ended with SIG[A-Z]+\); give a parquet/,
    });
  });
});

describe('a CSV file', () => {
  it('a CSV file has lists with commas or blanks, in brackets or not', async () => {
    const csv = [
      'target,nums,note',
      '98,"[44, 19, 35]",""',
      '64,[63 95 96],"of two\nlines, and ""quoted"""',
      '20,"49,16,50,1",',
      ' 84 , 3 7 21 ,x',
    ];
    assert.deepEqual(await readText('a.csv', csv.join('\n')), rows);
    assert.deepEqual(await readText('a.csv', `\uFEFF${csv.join('\r\n')}\r\n\r\n`), rows);
  });

  it('a CSV file keeps a text that looks like a number if the example has a text in that column', async () => {
    const path = join(folder, 'b.csv');
    await writeFile(path, 'question,answer\n72,72\nHow?,1 #### 7\n');
    const read = await readRows(specOf(path), (row) => row, { question: 'How much …?', answer: 1 });
    assert.deepEqual(read, [
      { question: '72', answer: 72 },
      { question: 'How?', answer: '1 #### 7' },
    ]);
  });

  it('a CSV file is refused with the lines that are not problems', async () => {
    const csv = 'nums,target\n3 7 21,84\n3 seven 21,84\n3 7 21,\n';
    await assert.rejects(readText('c.csv', csv), {
      name: 'UserError',
      message:
        /c\.csv has 2 bad rows; [^]*line 3: nums\.1 is "seven": .*\n {2}- line 4: target is "": /,
    });
  });

  it('a CSV file is refused if its columns are separated by semicolons', async () => {
    await assert.rejects(readText('s.csv', 'nums;target\n3 7 21;84\n'), {
      name: 'UserError',
      message: /its first line is "nums;target", without commas\); give .* nums and target/,
    });
  });

  it('a CSV file is refused if it cannot be parsed', async () => {
    await assert.rejects(readText('d.csv', 'nums,target\n3,7,21,84\n'), {
      name: 'UserError',
      message:
        /cannot read the problems in .*d\.csv .*line 2.*first line names .* nums and target/i,
    });
  });
});

describe('a file in another encoding than UTF-8', () => {
  it('a file in another encoding than UTF-8 is refused, since its letters would be lost', async () => {
    for (const [name, text] of [
      ['latin.csv', 'question,answer\ncaf\u00e9,5\n'],
      ['latin.jsonl', '{"question":"caf\u00e9","answer":5}\n'],
    ] as const) {
      const path = join(folder, name);
      await writeFile(path, Buffer.from(text, 'latin1'));
      const reading = readRows(specOf(path), (row) => row, { question: '', answer: 5 });
      await assert.rejects(reading, {
        name: 'UserError',
        message: /it is not UTF-8 text; save it as UTF-8/,
      });
      await writeFile(path, text);
      assert.deepEqual(await readRows(specOf(path), (row) => row, { question: '', answer: 5 }), [
        { question: 'caf\u00e9', answer: 5 },
      ]);
    }
  });
});

describe('a byte order mark', () => {
  const mark = '\ufeff';

  it('a byte order mark before the first row is skipped, in CSV and in JSONL', async () => {
    const row = { nums: [3, 7, 21], target: 84 };
    assert.deepEqual(await readText('marked.csv', `${mark}nums,target\n3 7 21,84\n`), [row]);
    const line = JSON.stringify(row);
    assert.deepEqual(await readText('marked.jsonl', `${mark}${line}\n${line}`), [row, row]);
  });

  it('a byte order mark elsewhere is refused', async () => {
    const line = '{"nums":[3],"target":3}';
    await assert.rejects(readText('second.jsonl', `${mark}${mark}${line}`), /line 1: /);
    await assert.rejects(readText('later.jsonl', `${line}\n${mark}${line}`), /line 2: /);
  });
});

describe('a JSONL file', () => {
  it('a JSONL file has any lengths of lines, in characters of any length, and may end without a line break', async () => {
    const long = { nums: [3, 7, 21], target: 84, note: '答'.repeat(700_000) }; // two megabytes
    const [short] = rows;
    const lines = [short, long, short, long].map((row) => JSON.stringify(row));
    const path = join(folder, 'long.jsonl');
    await writeFile(path, lines.join('\r\n'));
    const read = await readRows(specOf(path), (row) => row, example);
    assert.deepEqual(read, [short, long, short, long]);
  });
});

describe('the file that --dataset names', () => {
  it('the file that --dataset names has the format of its extension', () => {
    for (const [path, kind] of [
      ['a.jsonl', 'jsonl'],
      ['/data/a.b/C.CSV', 'csv'],
      ['train-00000-of-00001.parquet', 'parquet'],
    ] as const) {
      assert.deepEqual(specOf(path), { kind, path, seed: 0, testSize: 1 });
    }
  });

  it('the file that --dataset names is refused with an unknown extension', () => {
    assert.throws(() => specOf('problems.xlsx'), {
      name: 'UserError',
      message: /--dataset problems\.xlsx .*\.jsonl or \.csv or \.parquet/,
    });
  });
});
