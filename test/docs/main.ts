/** `npm run docs`: updates the generated parts of the documentation. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';
import { examplePages, updatedExample } from './example.js';
import { updatedFigures } from './figures.js';
import { objectivePage, updatedObjective } from './losses-table.js';
import { metricsPage, updatedPage } from './metrics-table.js';
import { racePage, updatedRaces } from './race-table.js';
import { resultPages, updatedResults } from './results-table.js';
import { backendsPage, updatedServers } from './servers-table.js';
import { simulatedPage, updatedSimulations } from './simulated-tables.js';
import { configurationPage, updatedConfiguration } from './settings-table.js';

await writeFile(metricsPage, await updatedPage(await readFile(metricsPage, 'utf8')));
await writeFile(configurationPage, updatedConfiguration(await readFile(configurationPage, 'utf8')));
await writeFile(objectivePage, updatedObjective(await readFile(objectivePage, 'utf8')));
await writeFile(backendsPage, updatedServers(await readFile(backendsPage, 'utf8')));
for (const name of resultPages) {
  const path = join(packageRoot, name);
  await writeFile(path, await updatedResults(name, await readFile(path, 'utf8')));
}
for (const [path, figure] of await updatedFigures()) {
  await writeFile(join(packageRoot, path), figure);
}
const simulated = join(packageRoot, simulatedPage);
await writeFile(simulated, await updatedSimulations(await readFile(simulated, 'utf8')));
const raced = join(packageRoot, racePage);
await writeFile(raced, await updatedRaces(await readFile(raced, 'utf8')));
for (const [path, page] of await examplePages()) {
  await writeFile(join(packageRoot, path), await updatedExample(page));
}
