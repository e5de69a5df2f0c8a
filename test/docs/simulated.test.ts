import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { commandsOf } from './pages.js';
import { simulatedPage, simulatedTables, updatedSimulations } from './simulated-tables.js';

describe('the simulations in the documentation', () => {
  let text: string;
  before(async () => {
    text = await readFile(join(packageRoot, simulatedPage), 'utf8');
  });

  it('the tables of docs/performance.md are what its commands print', async () => {
    assert.equal(text, await updatedSimulations(text), 'run npm run docs');
  });

  it('docs/performance.md shows the command of each simulated table', () => {
    const commands = commandsOf({ path: simulatedPage, text }).map(({ text }) => text);
    const simulated = commands.filter((text) => text.startsWith('npm run simulate'));
    assert.deepEqual(simulated, Object.values(simulatedTables));
  });
});
