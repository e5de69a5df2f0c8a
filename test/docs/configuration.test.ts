import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { describe, it } from 'node:test';
import type { z } from 'zod';
import { LearnerConfig } from '../../learner/config.js';
import { isList } from '../../shared/service/config-fields.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { runOffbeat } from '../support/offbeat.js';
import { objectivePage, updatedObjective } from './losses-table.js';
import { codeIn, tableUnder } from './metrics-table.js';
import { sourceTexts } from './sources.js';
import { commandSettings, learnerSettings } from './settings.js';
import { configurationPage, updatedConfiguration } from './settings-table.js';

describe('the page on configuration', async () => {
  const page = await readFile(configurationPage, 'utf8');

  it('the page on configuration has every setting with its values, default and meaning', () => {
    const remedy = 'run `npm run docs` and commit docs/configuration.md';
    assert.equal(updatedConfiguration(page), page, remedy);
  });

  it('the page on the objective has every loss with its formula, settings and passes', async () => {
    const objective = await readFile(objectivePage, 'utf8');
    const remedy = 'run `npm run docs` and commit docs/objective.md';
    assert.equal(updatedObjective(objective), objective, remedy);
  });

  it('the page on configuration contains no path of this machine', () => {
    assert(!page.includes(packageRoot));
  });

  it('the page on configuration has every setting of the learner once', () => {
    const listed = learnerSettings.flatMap(({ shape }) => Object.keys(shape));
    assert.deepEqual(listed.sort(), Object.keys(LearnerConfig.shape).sort());
  });

  it('the page on configuration has every command that has settings', async () => {
    const { out } = await runOffbeat(['help'], tmpdir());
    const commands = [...out.matchAll(/^ {2}([a-z-]+)/gm)].map(([, name]) => name!);
    const others = ['help', 'tuft-cpu']; // a Python program with its own help: offbeat tuft-cpu --help
    const missing = commands.filter((name) => !(name in commandSettings) && !others.includes(name));
    assert.deepEqual(missing, [], 'add them to test/docs/settings.ts');
  });

  it('the page on configuration explains every setting', () => {
    const meanings = [...page.matchAll(/^\| `--[a-z0-9-]+` .*\| +(.*?) +\|$/gm)];
    assert(meanings.length > 100);
    for (const [row, meaning] of meanings) assert.match(meaning!, /\w{2}/, row);
  });

  it('the flag of a setting can be repeated if its values are separated by commas, and no other', () => {
    const shapes = [...Object.values(commandSettings), ...learnerSettings].map(
      ({ shape }) => shape,
    );
    const fields = shapes.flatMap((shape) => Object.entries(shape));
    const lists = fields.filter(([, field]) => isList(field)).map(([key]) => key);
    const described = fields.filter(([, field]) => {
      return (field as z.ZodType).description?.includes('separated by commas');
    });
    assert.deepEqual(
      lists,
      described.map(([key]) => key),
    );
    assert(lists.includes('engineUrl'));
  });

  it('the page on configuration has every environment variable that is not a setting', async () => {
    const texts = await sourceTexts([
      'actor',
      'cli',
      'deploy',
      'learner',
      'local-backend',
      'reward-service',
      'shared',
      'tools',
    ]);
    const read = texts.flatMap((text) =>
      [...text.matchAll(/env(?:ironment)?\[['"]([A-Z][A-Z_]+)['"]\]/g)].map(([, name]) => name!),
    );
    const ofSettings = /^(LEARNER|ACTOR|REWARD_SERVICE|SCORE_SERVER|LOCAL_BACKEND)_/;
    const ofSystem = ['PATH', 'TERM', 'HOME'];
    const expected = new Set(
      read.filter((name) => !ofSettings.test(name) && !ofSystem.includes(name)),
    );
    const rows = tableUnder(page, '## Other variables of the environment');
    const listed = new Set(rows.flatMap(([cell]) => codeIn(cell!)));
    assert.deepEqual([...expected].filter((name) => !listed.has(name)).sort(), []);
    const all = texts.join('\n');
    assert.deepEqual(
      [...listed].filter((name) => !all.includes(name)),
      [],
    );
  });
});
