import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { countdown } from '../../../shared/tasks/countdown/task.js';
import { dataSpec } from '../../../shared/tasks/data/data.js';
import type { TableKind } from '../../../shared/tasks/data/table.js';
import { countdownSpec } from '../../support/countdown-task.js';
import { HubServer, repository } from '../../support/hub-server.js';
import { parquetFile } from '../../support/parquet-writer.js';

interface Row {
  readonly nums: readonly number[];
  readonly target: number;
}

/** Writes the rows as a file of each kind has them. */
const writers: Readonly<Record<TableKind, (path: string, rows: readonly Row[]) => unknown>> = {
  jsonl: (path, rows) => writeFile(path, rows.map((row) => JSON.stringify(row)).join('\n')),
  csv: (path, rows) => {
    const lines = rows.map(({ nums, target }) => `"[${nums.join(', ')}]",${target}`);
    return writeFile(path, ['nums,target', ...lines].join('\n'));
  },
  parquet: (path, rows) => {
    const columns = {
      nums: rows.map(({ nums }) => nums),
      target: rows.map(({ target }) => target),
    };
    return writeFile(path, parquetFile(columns));
  },
};

/** Few numbers and targets, so that problems ask the same by chance too. */
const problem: fc.Arbitrary<Row> = fc.record({
  nums: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 3, maxLength: 4 }),
  target: fc.integer({ min: 1, max: 2 }),
});

/** A question, and the same one with its numbers in another order. */
const askedTwice = problem.chain((first) =>
  fc
    .shuffledSubarray([...first.nums], { minLength: first.nums.length })
    .map((nums): readonly [Row, Row] => [first, { ...first, nums }]),
);

const idOf = ({ nums, target }: Row) => `${nums.join()}=${target}`;
const questionOf = ({ nums, target }: Row) => `${nums.toSorted((a, b) => a - b).join()}=${target}`;

describe('a dataset with held-out questions among its rows', { timeout: 120_000 }, () => {
  let folder: string;
  let server: HubServer;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-leaks-'));
    server = await HubServer.start({});
    process.env['HF_ENDPOINT'] = server.url;
  });
  after(async () => {
    await server[Symbol.asyncDispose]();
    await rm(folder, { recursive: true });
  });

  /**
   * Compares what is left out with a count by sorted numbers.
   *
   * @param sourceOf offers a file as the value of `--dataset`.
   */
  const check = (
    kind: TableKind,
    numRuns: number,
    sourceOf: (path: string) => string | Promise<string>,
  ) =>
    fc.assert(
      fc.asyncProperty(
        fc.array(askedTwice, { minLength: 1, maxLength: 5 }),
        fc.array(problem, { maxLength: 20 }),
        async (twice, others) => {
          const heldOut = twice.map(([first]) => first);
          const last = { nums: [11, 12, 13], target: 3 }; // something remains to train on
          const rest = [...others, ...twice.map(([, again]) => again), last];
          const path = join(folder, `train.${kind}`);
          await writers[kind](path, [...heldOut, ...rest]);
          const how = { seed: 0, testSize: heldOut.length };
          const dataset = await dataSpec(await sourceOf(path), how);
          const { test, train, leakedRows } = await countdown
            .open(countdownSpec({ dataset }))
            .load();
          assert.deepEqual(
            test.map(({ id }) => id),
            heldOut.map(idOf),
          );
          const asked = new Set(heldOut.map(questionOf));
          const kept = rest.filter((row) => !asked.has(questionOf(row)));
          assert.deepEqual(train.map(({ id }) => id).sort(), kept.map(idOf).sort());
          assert.equal(leakedRows, rest.length - kept.length);
        },
      ),
      { numRuns },
    );

  for (const kind of ['jsonl', 'csv', 'parquet'] as const) {
    const numRuns = kind === 'parquet' ? 10 : 50; // a process is started for each parquet file

    it(`rows of a ${kind} file that ask a held-out question, in any order of its numbers, are left out and counted`, () =>
      check(kind, numRuns, (path) => path));

    it(`rows of a ${kind} file on the hub that ask a held-out question, in any order of its numbers, are left out and counted`, () =>
      check(kind, 10, async (path) => {
        server.files.clear();
        server.files.set(`data/train.${kind}`, await readFile(path));
        process.env['OFFBEAT_DATASETS'] = await mkdtemp(join(folder, 'hub-')); // else the last download is used
        return repository;
      }));
  }
});
