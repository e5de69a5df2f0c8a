import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import * as otherProblems from '../../../cli/eval/other-problems.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import { countdownSpec } from '../../support/countdown-task.js';
import { integerAnswersSpec } from '../../support/integer-answers-task.js';
import { runConfig } from '../../support/messages.js';

describe('the problems of offbeat eval', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-eval-problems-'));
  });
  after(() => rm(folder, { recursive: true }));
  const write = async (name: string, rows: readonly object[]) => {
    const path = join(folder, name);
    await writeFile(path, rows.map((row) => JSON.stringify(row)).join('\n'));
    return path;
  };
  const rowsFrom = (first: number, count: number) =>
    Array.from({ length: count }, (_, i) => ({ nums: [1, 2, first + i], target: 3 + first + i }));
  const warnings: string[] = [];
  const withProblems = (
    config: RunConfig,
    flags: Parameters<typeof otherProblems.withProblems>[1],
  ) => otherProblems.withProblems(config, flags, (text) => warnings.push(text));
  const runOn = (path: string, testSize: number) =>
    runConfig({ task: countdownSpec({ dataset: { kind: 'jsonl', path, seed: 0, testSize } }) });

  it('without flags they are those of the run', async () => {
    const config = runOn('nowhere.jsonl', 5); // nothing is read
    assert.equal(await withProblems(config, { problems: 3 }), config);
  });

  it('held-out problems of another file are chosen, with the prompt and the reward of the run', async () => {
    const config = runOn(await write('own.jsonl', rowsFrom(10, 30)), 5);
    const dataset = await write('other.jsonl', rowsFrom(100, 20));
    const { task, datasetDigest } = await withProblems(config, { dataset, testSize: 10 });
    const chosen = { kind: 'jsonl', path: dataset, seed: 0, testSize: 10 };
    assert.deepEqual(task, { ...config.task, dataset: chosen });
    assert.notEqual(datasetDigest, config.datasetDigest);
    assert.deepEqual(warnings, []);
  });

  it('where the problems of the run are not at hand, those of the flags are measured with a warning', async () => {
    const dataset = await write('elsewhere.jsonl', rowsFrom(100, 20));
    const { task } = await withProblems(runOn('nowhere.jsonl', 5), { dataset, testSize: 10 });
    assert.equal(task.dataset.kind, 'jsonl');
    assert.match(
      warnings.splice(0).join(),
      /^cannot check whether run test was trained on .* \(.*nowhere\.jsonl/,
    );
  });

  it('what a run learned from a file of examples or before it began is not compared, which is said', async () => {
    const dataset = await write('elsewhere.jsonl', rowsFrom(100, 20));
    const own = runOn(await write('own.jsonl', rowsFrom(10, 30)), 5);
    const batch = { by: 'examples', size: 4 } as const;
    const config = {
      ...own,
      supervised: { data: 'mine.jsonl', digest: 'd', heldOut: 1, batch },
      from: { path: 'tinker://a/weights/b', run: 'warm@7' },
    };
    await withProblems(config, { dataset, testSize: 10 });
    assert.deepEqual(warnings.splice(0), [
      'run test was trained on mine.jsonl; nothing compares it with the problems',
      'run test started from warm@7; what that was trained on is not compared',
    ]);
    await withProblems(
      { ...own, supervised: { ...config.supervised, data: 'solver' } },
      { dataset, testSize: 10 },
    );
    assert.deepEqual(warnings, []);
  });

  it('problems that the run was trained on are refused with their number, as far as they are measured', async () => {
    const dataset = await write('own.jsonl', rowsFrom(10, 30));
    const config = runOn(dataset, 5);
    await assert.rejects(withProblems(config, { dataset, testSize: 20 }), {
      name: 'UserError',
      message: /^run test was trained on 15 of the 20 chosen problems.*holds out 5 of its/,
    });
    const measured = { dataset, testSize: 20, problems: 4, skipProblems: 3 };
    await assert.rejects(withProblems(config, measured), /on 2 of the 4 chosen/);
    await withProblems(config, { ...measured, skipProblems: 1 });
  });

  it('a problem that asks the same in another way counts as trained on', async () => {
    const own = await write('own.jsonl', rowsFrom(10, 30));
    const same = { nums: [39, 2, 1], target: 42 }; // the last row, in another order
    const dataset = await write('turned.jsonl', [same, ...rowsFrom(100, 3)]);
    await assert.rejects(
      withProblems(runOn(own, 5), { dataset, testSize: 2 }),
      /on 1 of the 2 chosen/,
    );

    const question = (text: string) => ({ question: text, answer: 1 });
    const path = await write('words.jsonl', ['A?', 'B?', 'C?'].map(question));
    const task = integerAnswersSpec({ dataset: { kind: 'jsonl', path, seed: 0, testSize: 1 } });
    const others = await write('other-words.jsonl', [question(' b?'), question('D?')]);
    await assert.rejects(
      withProblems(runConfig({ task }), { dataset: others, testSize: 1 }),
      /on 1 of the 1 chosen/,
    );
  });

  it('generated held-out problems are never among those that a generating run trains on', async () => {
    const { task } = await withProblems(runConfig(), { numbers: '3,4', testSize: 40 });
    assert.equal(task.dataset.kind, 'generator');
  });

  it('a size or a seed alone does not replace the data of the run by generated problems', async () => {
    const config = runOn(await write('own.jsonl', rowsFrom(10, 30)), 5);
    await assert.rejects(withProblems(config, { testSize: 50 }), {
      name: 'UserError',
      message:
        /^--test-size alone would choose generated problems, and run test has those of .*own\.jsonl; add --dataset .* or remove it and .* --problems/,
    });
    await assert.rejects(
      withProblems(config, { testSize: 50, datasetSeed: 1 }),
      /UserError: --dataset-seed and --test-size alone .* remove them/,
    );
    const { task } = await withProblems(config, { numbers: '4', maxTarget: 50 });
    assert.equal(task.dataset.kind, 'generator');
  });
});
