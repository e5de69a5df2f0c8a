import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { folderRun } from '../../../cli/dashboard/run/folder-run.js';
import { writeSamples } from '../../../cli/dashboard/run/sampled-group.js';
import { runFolderAt } from '../../../cli/run-folder.js';
import { lockFolder } from '../../../shared/service/folder-lock.js';
import { evalResult, runConfig } from '../../support/messages.js';
import { sampled } from '../../support/run-view.js';

const step = (number: number) =>
  JSON.stringify({ step: number, version: number, time: '2026-11-21T17:31:17.250Z', entropy: 0.5 });

async function withFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-folder-run-'));
  try {
    await use(folder);
  } finally {
    await rm(folder, { recursive: true });
  }
}

describe('a run read from its folder', () => {
  it('a run read from its folder is over, with its steps, evaluations and trained groups', async () => {
    await withFolder(async (folder) => {
      await writeFile(join(folder, 'metrics.jsonl'), `${step(1)}\n${step(2)}\n`);
      const { answers: _answers, ...result } = evalResult({ version: 2 });
      await writeFile(join(folder, 'evals.jsonl'), `${JSON.stringify({ time: 't', ...result })}\n`);
      await writeFile(join(folder, 'config.json'), JSON.stringify(runConfig()));
      await writeFile(join(folder, 'summary.json'), '{"reason": "max_steps"}');
      await writeSamples({ path: folder }, [sampled('7*3*4')]);
      const { phase, history, config, flow, samples } = await folderRun(
        'r',
        runFolderAt(folder, '.'),
      );
      assert.deepEqual([phase, flow, config?.groupSize], ['over', undefined, 4]);
      assert.deepEqual(history.steps.at(-1), {
        ...{ step: 2, version: 2, at: Date.parse('2026-11-21T17:31:17.250Z') },
        metrics: { entropy: 0.5 },
      });
      assert.equal(history.evals[0]?.version, 2);
      assert.equal(history.summary?.['reason'], 'max_steps');
      assert.deepEqual(samples, [sampled('7*3*4')]);
    });
  });

  it('a run read from its folder is not over while a process uses the folder', async () => {
    await withFolder(async (folder) => {
      using _lock = await lockFolder(folder, 'offbeat up');
      assert.equal((await folderRun('r', runFolderAt(folder, '.'))).phase, 'silent');
    });
  });

  it('a run read from its folder lacks what is missing, incomplete or of another form', async () => {
    await withFolder(async (folder) => {
      await writeFile(
        join(folder, 'metrics.jsonl'),
        `{"step": "one"}\n${step(2)}\n{"step": 3, "ver`,
      );
      const { history, config, samples } = await folderRun('r', runFolderAt(folder, '.'));
      assert.deepEqual(
        history.steps.map((point) => point.step),
        [2],
      );
      assert.deepEqual(
        [history.evals, history.summary, config, samples],
        [[], undefined, undefined, []],
      );
    });
  });
});
