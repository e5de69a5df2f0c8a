import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { loadConfig } from '../../../shared/config.js';
import { embeddedDataset } from '../../../shared/countdown/embedded-dataset.js';
import { styles } from '../../../shared/countdown/prompts.js';
import { zeroOrOne } from '../../../shared/countdown/score.js';
import { TaskSettings, taskSpec } from '../../../shared/tasks/registry.js';

const specOf = (...flags: string[]) => taskSpec(loadConfig(TaskSettings, 'learner', flags, {}));

describe('the task that the settings ask for', () => {
  it('is by default Countdown as the embedded model knows it', async () => {
    assert.deepEqual(await specOf(), {
      name: 'countdown',
      dataset: embeddedDataset,
      prompt: styles.compact.en,
      reward: { ...zeroOrOne, formatScore: 0.1, shaping: 'constant' },
    });
  });

  it('generates other problems, or reads a file', async () => {
    const other = await specOf('--numbers', '3,4', '--dataset-seed', '7');
    assert.deepEqual(other.dataset, { ...embeddedDataset, numbers: [3, 4], seed: 7 });
    const read = await specOf('--dataset', 'problems.jsonl', '--test-size', '512');
    assert.deepEqual(read.dataset, {
      kind: 'jsonl',
      path: 'problems.jsonl',
      seed: 0,
      testSize: 512,
    });
  });
});
