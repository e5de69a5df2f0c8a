import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { loadConfig } from '../../../shared/service/config.js';
import { embeddedDataset } from '../../../shared/tasks/countdown/generator.js';
import { styles } from '../../../shared/tasks/countdown/prompts.js';
import { styles as integerStyles } from '../../../shared/tasks/integer-answers/prompts.js';
import { checkTask, flagsOf, TaskSettings, taskSpec } from '../../../shared/tasks/registry.js';
import { zeroOrOne } from '../../support/countdown-task.js';

const specOf = (...flags: string[]) => taskSpec(loadConfig(TaskSettings, 'learner', flags, {}));

describe('the task chosen by the settings', () => {
  it('the task is by default Countdown with the problems of the embedded model', async () => {
    assert.deepEqual(await specOf(), {
      name: 'countdown',
      dataset: embeddedDataset,
      prompt: styles.compact.en,
      reward: { ...zeroOrOne, formatScore: 0.1, shaping: 'constant' },
    });
  });

  it('the task generates other problems or reads a file if the settings say so', async () => {
    const { rehearsal, ...chosen } = embeddedDataset;
    const other = await specOf('--numbers', '3,4', '--dataset-seed', '7');
    assert.deepEqual(other.dataset, { ...chosen, numbers: [3, 4], seed: 7 });
    const small = await specOf('--max-target', '100');
    assert.deepEqual(small.dataset, { ...chosen, minTarget: 1, maxTarget: 100 });
    const ranges = await specOf('--min-number', '10', '--min-target', '20');
    assert.deepEqual(ranges.dataset, { ...chosen, minNumber: 10, minTarget: 20 });
    assert.deepEqual((await specOf('--rehearsal-share', '0')).dataset, chosen);
    const mixed = await specOf('--max-target', '300', '--rehearsal-share', '0.5');
    assert.deepEqual(mixed.dataset, {
      ...{ ...chosen, minTarget: 1, maxTarget: 300 },
      rehearsal: { ...rehearsal, share: 0.5 },
    });
    const read = await specOf('--dataset', 'problems.jsonl', '--test-size', '512');
    assert.deepEqual(read.dataset, {
      kind: 'jsonl',
      path: 'problems.jsonl',
      seed: 0,
      testSize: 512,
    });
  });
});

describe('the task integer-answers', () => {
  it('the task integer-answers reads a file, with its own prompt and penalty', async () => {
    const flags = ['--task', 'integer-answers', '--dataset', 'gsm8k.jsonl'];
    const zh = ['--prompt-style', 'think', '--prompt-language', 'zh'];
    assert.deepEqual(await specOf(...flags, ...zh, '--format-penalty', '0.2'), {
      name: 'integer-answers',
      dataset: { kind: 'jsonl', path: 'gsm8k.jsonl', seed: 0, testSize: 1_024 },
      prompt: integerStyles.think.zh,
      reward: { formatPenalty: 0.2 },
    });
  });
});

describe('the flags of all tasks', () => {
  const task = (name: string, settings: Record<string, unknown>) => ({ name, settings });

  it('a flag may belong to two tasks', () => {
    const margin = z.number().optional();
    assert.deepEqual(flagsOf([task('a', { margin }), task('b', { margin })]), { margin });
  });

  it('a flag may not have two meanings, nor the name of a flag of every task', () => {
    const margin = z.number().optional();
    const other = z.string().optional();
    assert.throws(
      () => flagsOf([task('a', { margin }), task('b', { margin: other })]),
      /margin .* b /,
    );
    assert.throws(() => flagsOf([task('a', { testSize: margin })]), /testSize .* a /);
    assert.throws(() => flagsOf([task('a', { task: margin })]), /task .* a /);
  });
});

describe('settings that contradict the task', () => {
  const complaints = (...flags: string[]) => {
    const told: string[] = [];
    checkTask(loadConfig(TaskSettings, 'learner', flags, {}), (key, message) => {
      told.push(`${key}: ${message}`);
    });
    return told;
  };

  it('the default settings contradict no task', () => {
    assert.deepEqual(complaints(), []);
    assert.deepEqual(complaints('--numbers', '3,4', '--dataset', 'generator'), []);
  });

  const refused: [flags: string[], says: RegExp][] = [
    [['--dataset=a.jsonl', '--numbers=3'], /^numbers: it applies to generated problems/],
    [['--min-number=51'], /^minNumber: it exceeds --max-number, which is 50$/],
    [['--max-target=5', '--min-target=6'], /^minTarget: it exceeds --max-target, which is 5$/],
    [['--task=integer-answers'], /^dataset: .* has no generator; name a file/],
    [['--task=integer-answers', '--dataset=generator'], /^dataset: /],
    [
      ['--task=integer-answers', '--dataset=a.jsonl', '--shaping=none'],
      /^shaping: --task integer-answers does not use it, only --task countdown does; remove it/,
    ],
    [['--format-penalty=0.2'], /^formatPenalty: --task countdown does not use it/],
  ];
  for (const [flags, says] of refused) {
    it(`the settings ${flags.join(' ')} are refused`, () => {
      const [told, ...others] = complaints(...flags);
      assert.match(String(told), says);
      assert.deepEqual(others, []);
    });
  }
});
