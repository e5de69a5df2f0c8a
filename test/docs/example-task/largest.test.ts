import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { loadConfig } from '../../../shared/service/config.js';
import { CommonSettings } from '../../../shared/tasks/task.js';
import { Score } from '../../../shared/wire/scored-group.js';
import { examplePages, updatedExample } from '../example.js';
import { largest } from './largest.js';

describe('the task of docs/new-task.md', async () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-task-'));
  });
  after(() => rm(folder, { recursive: true }));

  const open = async () => {
    const path = join(folder, 'numbers.jsonl');
    const rows = [
      [3, 17, 8],
      [5, 2],
      [40, 41, 39, 1],
      [9, 90],
    ];
    await writeFile(path, rows.map((numbers) => JSON.stringify({ numbers })).join('\n'));
    const flags = ['--dataset', path, '--test-size', '1'];
    const settings = loadConfig(CommonSettings, 'learner', flags, {});
    return largest.open(await largest.configure(settings));
  };

  it('the example task has training problems and held-out problems', async () => {
    const { train, test } = await (await open()).load();
    assert.deepEqual([train.length, test[0]?.id], [3, '3,17,8']);
  });

  it('the example task makes prompts by its template', async () => {
    const task = await open();
    assert.deepEqual(task.prompt(task.problemOf({ numbers: [3, 17, 8] })), { text: '3 17 8:' });
  });

  it('the example task scores every completion that a policy may write', async () => {
    const task = await open();
    const problem = task.problemOf({ numbers: [3, 17, 8] });
    for (const [completion, reward, reason] of [
      ['17', 1, 'correct'],
      ['8', 0, 'wrong_value'],
      ['3 17 8', 0, 'no_answer'],
      ['', 0, 'no_answer'],
      ['9'.repeat(100_000), 0, 'no_answer'],
    ] as const) {
      const scored = Score.parse(task.score(problem, completion));
      assert.deepEqual([scored.reward, scored.reason], [reward, reason]);
    }
  });

  it('the example task refuses an invalid row and names it', async () => {
    const task = await open();
    assert.throws(() => task.problemOf({ numbers: [1] }), /numbers/);
  });

  for (const [path, page] of await examplePages()) {
    it(`the example task is the code shown in ${path}`, async () => {
      assert.equal(await updatedExample(page), page, `run \`npm run docs\` and commit ${path}`);
    });
  }
});
