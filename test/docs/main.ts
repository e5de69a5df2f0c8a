/** `npm run docs`: writes into the documentation what is made from the code. */
import { readFile, writeFile } from 'node:fs/promises';
import { metricsPage, updatedPage } from './metrics-table.js';
import { configurationPage, updatedConfiguration } from './settings-table.js';

const update = async (path: string, updated: (page: string) => string | Promise<string>) => {
  await writeFile(path, await updated(await readFile(path, 'utf8')));
};
await update(metricsPage, updatedPage);
await update(configurationPage, updatedConfiguration);
