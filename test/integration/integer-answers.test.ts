import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Summary } from '../../cli/up/summary.js';
import { embeddedDataset, generateProblems } from '../../shared/tasks/countdown/generator.js';
import { UpProcess } from '../support/up-process.js';

describe('offbeat up --task integer-answers', { timeout: 300_000 }, () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-questions-'));
  });
  after(() => rm(folder, { recursive: true }));

  const flags = (dataset: string) => [
    '--task=integer-answers',
    `--dataset=${dataset}`,
    ...'--test-size=4 --eval-problems=2 --eval-samples=1 --groups-per-batch=2 --group-size=8'.split(
      ' ',
    ),
    ...'--num-minibatches=1 --lora-rank=2 --max-steps=2 --actors=1 --json'.split(' '),
  ];
  const file = async (name: string, rows: object[]) => {
    const path = join(folder, name);
    await writeFile(path, rows.map((row) => JSON.stringify(row)).join('\n'));
    return path;
  };

  it('the task integer-answers trains the embedded model on questions in its alphabet', async () => {
    // It answers by an expression, so some answers end in the requested number.
    const rows = generateProblems({ ...embeddedDataset, trainSize: 1 })
      .test.slice(0, 64)
      .map(({ problem: { numbers, target }, witness }) => ({
        question: `${numbers.join(' ')}=${target}:`,
        answer: Number(/\d+(?=\D*$)/.exec(witness)?.[0]),
      }));
    await using up = await UpProcess.start(flags(await file('readable.jsonl', rows)));
    assert.equal(await up.ended(), 0, up.err);
    const summary = Summary.parse(JSON.parse(up.out));
    assert.deepEqual([summary.steps, summary.eval?.problems], [2, 2]);
    const { task } = JSON.parse(await up.read('config.json')) as { task: { name: string } };
    assert.equal(task.name, 'integer-answers');
  });

  it('the task integer-answers is refused, naming the characters, if the embedded model cannot read its questions', async () => {
    const rows = Array.from({ length: 8 }, (_, i) => ({
      question: `How much is ${i}?`,
      answer: i,
    }));
    await using up = await UpProcess.start(flags(await file('words.jsonl', rows)));
    assert.equal(await up.ended(), 2, up.err);
    assert.match(
      up.err,
      /learner ended with code 2:\s+[^\n]*cannot read the prompts.*no token for "\?", "H".*--model-dir/,
    );
  });
});
