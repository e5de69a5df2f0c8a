/** `npm run docs`: writes into the documentation what is made from the code. */
import { readFile, writeFile } from 'node:fs/promises';
import { metricsPage, updatedPage } from './metrics-table.js';

await writeFile(metricsPage, await updatedPage(await readFile(metricsPage, 'utf8')));
