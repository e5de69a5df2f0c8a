import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { embeddedModelPath, readModelDirectory } from '../../shared/model/model-directory.js';
import { loadUpConfig } from '../../cli/up/load-up-config.js';
import { usualActorsOfRun } from '../../cli/up/up-config.js';
import { LearnerConfig } from '../../learner/config.js';
import { describe as textOf } from '../../tools/sweep/plan.js';
import { readSweepFile } from '../../tools/sweep/sweep-file.js';
import { racePage, updatedRaces } from './race-table.js';
import { committedReport, committedResults, resultPages, updatedResults } from './results-table.js';

describe('the results in the documentation', () => {
  for (const name of resultPages) {
    it(`the tables of ${name} are those of the committed results`, async () => {
      const page = await readFile(join(packageRoot, name), 'utf8');
      assert.equal(page, await updatedResults(name, page), 'run npm run docs');
    });
  }

  it('the table of the race is that of the committed results', async () => {
    const page = await readFile(join(packageRoot, racePage), 'utf8');
    assert.equal(page, await updatedRaces(page), 'run npm run docs');
  });

  it('the committed results of each experiment are one of each planned run, of all the problems that it asks for', async () => {
    const folders = await readdir(join(packageRoot, 'docs/experiments/results'));
    const isExperiment = (name: string) =>
      existsSync(join(packageRoot, 'docs/experiments', `${name}.json`));
    for (const experiment of folders.filter(isExperiment)) {
      const { warnings, cells, sweep, results } = await committedReport(experiment);
      assert.deepEqual(warnings, [], experiment);
      const planned = cells.flatMap(({ choice }) => sweep.seeds.map((seed) => ({ choice, seed })));
      const nameOf = ({ choice, seed }: (typeof planned)[number]) => `${textOf(choice)} ${seed}`;
      assert.deepEqual(results.map(nameOf).sort(), planned.map(nameOf).sort(), experiment);
    }
  });

  it('each page with the gain of SmolLM2 says there that its settings were chosen on the measured problems', async () => {
    const pages = ['README.md', 'docs/experiments.md', 'docs/experiments/published-model.md'];
    for (const name of pages) {
      const page = await readFile(join(packageRoot, name), 'utf8');
      const blocks = page.replace(/<!--.*-->\n/g, '').split(/\n{2,}/);
      const gains = blocks.flatMap((block, i) =>
        /\+20\.2|\b20(\.2)? points/.test(block) ? [i] : [],
      );
      assert(gains.length > 0, `${name} no longer gives the gain`);
      for (const i of gains) {
        const around = blocks.slice(Math.max(0, i - 1), i + 1).join('\n');
        assert.match(
          around,
          /settings were chosen on|by which settings were chosen/i,
          `${name}: ${blocks[i]}`,
        );
      }
    }
  });

  it('the experiment on npm start has the settings that npm start has on two processors', async () => {
    const { settings: given } = await readSweepFile(
      join(packageRoot, 'docs/experiments/npm-start.json'),
      false,
    );
    const chosen = loadUpConfig(LearnerConfig, [], {}).settings;
    // A sweep gives the limit and the evaluations, and leaves the schedule to the launcher.
    const { maxMinutes: _limit, evalEveryVersions: _every, schedule: _fall, ...usual } = chosen;
    assert(Object.keys(usual).length > 0);
    for (const [key, value] of Object.entries(usual)) assert.equal(given[key], value, key);
    assert.equal(given['actors'], usualActorsOfRun({}, 2));
  });

  it('the committed results are of the model that ships', async () => {
    const { digest } = await readModelDirectory(embeddedModelPath);
    for (const experiment of await readdir(join(packageRoot, 'docs/experiments/results'))) {
      for (const result of await committedResults(experiment)) {
        assert.equal(result.modelDigest, digest, `${experiment}/${result.name}`);
      }
    }
  });
});
