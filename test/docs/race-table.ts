import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';
import { raceRatios, racesIn, raceTable } from '../compat/race-table.js';
import { withSection } from './markdown-table.js';

export const racePage = 'docs/performance.md';
const committed = join(packageRoot, 'docs/experiments/cookbook-learning.jsonl');

/** The page with the table of the committed results of `npm run test:compat -- cookbook-learning`. */
export async function updatedRaces(page: string): Promise<string> {
  const races = racesIn(await readFile(committed, 'utf8'));
  const withTable = withSection(page, 'the race', raceTable(races));
  const withRatios = withSection(withTable, 'the race by seed', raceRatios(races));
  const dropping = raceRatios(races, { schedule: 'constant', windowPolicy: 'drop' });
  return withSection(withRatios, 'the race without waiting, by seed', dropping);
}
