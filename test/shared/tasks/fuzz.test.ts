import assert from 'node:assert/strict';
import { readFile, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { z } from 'zod';
import { UserError } from '../../../shared/base/errors.js';
import { packageRoot } from '../../../shared/base/package-root.js';
import { readRows, type TableKind } from '../../../shared/tasks/data/table.js';
import { fuzzRuns, mutationsOf } from '../../support/mutations.js';

const example = { nums: [3, 7, 21], target: 84 };
const Row = z.object({ nums: z.array(z.number()), target: z.number() });
const utf8 = (text: string) => new TextEncoder().encode(text);
const seeds: Readonly<Record<TableKind, () => Promise<Uint8Array[]>>> = {
  jsonl: () =>
    Promise.resolve([utf8('{"nums": [3, 7, 21], "target": 84}\n\n{"nums": [1], "target": 1}')]),
  csv: () =>
    Promise.resolve([
      utf8('nums,target\n"[3, 7, 21]",84\n1 2,3\n'),
      utf8('\ufefftarget,nums\r\n1,"""1"""\r\n'),
    ]),
  parquet: () =>
    Promise.all(
      ['none', 'gzip', 'snappy', 'zstd'].map((name) =>
        readFile(join(packageRoot, 'test/shared/tasks/golden', `${name}.parquet`)),
      ),
    ),
};

describe('a file of problems of any bytes', () => {
  for (const kind of ['jsonl', 'csv', 'parquet'] as const) {
    it(`a ${kind} file of any bytes gives rows or a UserError`, { timeout: 120_000 }, async () => {
      const folder = await mkdtemp(join(tmpdir(), 'offbeat-fuzz-'));
      const path = join(folder, `problems.${kind}`);
      try {
        await fc.assert(
          fc.asyncProperty(mutationsOf(await seeds[kind]()), async (bytes) => {
            await writeFile(path, bytes);
            try {
              await readRows({ kind, path }, (row) => Row.parse(row), example);
            } catch (caught) {
              assert(caught instanceof UserError, String(caught));
              assert(caught.message.length < 20_000);
            }
          }),
          // A process is started for each parquet file.
          { numRuns: kind === 'parquet' ? Math.ceil(fuzzRuns / 10) : fuzzRuns },
        );
      } finally {
        await rm(folder, { recursive: true });
      }
    });
  }
});
