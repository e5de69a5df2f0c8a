import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { countdown } from '../../../../shared/tasks/countdown/task.js';
import type { CountdownSpec } from '../../../../shared/tasks/countdown/spec.js';
import { asyncComplaintOf } from '../../../support/complaint.js';
import { countdownSpec } from '../../../support/countdown-task.js';

type DatasetSpec = CountdownSpec['dataset'];
const loadDataset = (dataset: DatasetSpec) => countdown.open(countdownSpec({ dataset })).load();

const generated: DatasetSpec = {
  kind: 'generator',
  seed: 0,
  numbers: [3],
  maxNumber: 30,
  maxTarget: 100,
  trainSize: 40,
  testSize: 10,
};

describe('a generated dataset', () => {
  it('a generated dataset has the requested sizes and finds its problems by id', async () => {
    const dataset = await loadDataset(generated);
    assert.equal(dataset.test.length, 10);
    assert.equal(dataset.train.length, 40);
    for (const problem of [...dataset.train, ...dataset.test]) {
      assert.equal(dataset.problem(problem.id), problem);
    }
    assert.equal(dataset.problem('1,2,3=4000'), undefined);
  });

  it('a generated dataset has one digest per content: equal for an equal spec, another for another seed or split', async () => {
    const digest = async (spec: DatasetSpec) => (await loadDataset(spec)).digest;
    const first = await digest(generated);
    assert.match(first, /^[0-9a-f]{64}$/);
    assert.equal(await digest(generated), first);
    assert.notEqual(await digest({ ...generated, seed: 1 }), first);
    assert.notEqual(await digest({ ...generated, testSize: 11, trainSize: 39 }), first);
  });
});

describe('a dataset from a file', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-dataset-'));
  });
  after(() => rm(folder, { recursive: true }));

  async function load(lines: string[], testSize = 2, seed = 0) {
    const path = join(folder, 'problems.jsonl');
    await writeFile(path, lines.join('\n'));
    return loadDataset({ kind: 'jsonl', path, seed, testSize });
  }
  const complaint = (lines: string[], testSize?: number) =>
    asyncComplaintOf(() => load(lines, testSize));
  const rows = Array.from({ length: 30 }, (_, i) => `{"nums":[${i + 1},2,3],"target":${i + 6}}`);

  it('a dataset from a file holds out the first rows in order and shuffles the rest by the seed', async () => {
    const { test, train } = await load(rows);
    assert.deepEqual(
      test.map(({ id }) => id),
      ['1,2,3=6', '2,2,3=7'],
    );
    const ids = (problems: typeof train) => problems.map(({ id }) => id);
    const inFileOrder = Array.from({ length: 28 }, (_, i) => `${i + 3},2,3=${i + 8}`);
    assert.deepEqual(ids(train).toSorted(), inFileOrder.toSorted());
    assert.notDeepEqual(ids(train), inFileOrder);
    assert.deepEqual(ids((await load(rows)).train), ids(train));
    assert.notDeepEqual(ids((await load(rows, 2, 1)).train), ids(train));
  });

  it('a dataset from a file may have blank lines, Windows line ends and unknown keys', async () => {
    const { test, train } = await load([
      '{"nums":[1,2],"target":3,"messages":[]}\r',
      '',
      '{"target":5,"nums":[2,3]}\r',
      '{"nums":[44,19,35],"target":98}',
      '',
    ]);
    assert.equal(test.length + train.length, 3);
  });

  it('a dataset from a file reports bad rows by their lines, up to a limit', async () => {
    const message = await complaint([
      rows[0]!,
      '{"nums":[1,2],"target":"3"}',
      'not json',
      '',
      '{"nums":[1],"target":3}',
      '{"nums":[1,-2],"target":3}',
      '{"nums":[1.5,2],"target":3}',
      '[]',
      '{"target":3}',
    ]);
    assert.match(message, /problems\.jsonl has 7 bad rows/);
    assert.match(message, /line 2: target is "3": expected a number/);
    assert.match(message, /line 3: .*JSON/);
    assert.match(message, /line 5: nums: /);
    assert.match(message, /line 6: nums\.1 is -2: /);
    assert.match(message, /line 7: nums\.0 is 1\.5: /);
    assert.match(message, /and 2 more/);
  });

  it('a dataset from a file is refused if no row remains to train on', async () => {
    const all = ['{"nums":[1,2],"target":3}', '{"nums":[2,1],"target":3}'];
    const leaked =
      /has 2 problems, and --test-size holds out 1 for tests, and the other one asks what one of those asks: none .*; give a larger/;
    assert.match(await complaint(all, 1), leaked);
    assert.match(
      await complaint(rows.slice(0, 2)),
      /has 2 problems, and --test-size holds out 2 .*; lower --test-size/,
    );
  });

  it('a dataset names a file that cannot be read', async () => {
    const path = join(folder, 'missing.jsonl');
    await assert.rejects(loadDataset({ kind: 'jsonl', path, seed: 0, testSize: 1 }), {
      name: 'UserError',
      message: /cannot read the problems in .*missing\.jsonl.*ENOENT/,
    });
  });
});
