import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { embeddedModelPath, readModelDirectory } from '../../shared/model/model-directory.js';
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

  it('the committed results of each experiment are of all the problems that it asks for', async () => {
    const folders = await readdir(join(packageRoot, 'docs/experiments/results'));
    const isExperiment = (name: string) =>
      existsSync(join(packageRoot, 'docs/experiments', `${name}.json`));
    for (const experiment of folders.filter(isExperiment)) {
      assert.deepEqual((await committedReport(experiment)).warnings, [], experiment);
    }
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
