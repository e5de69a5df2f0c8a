import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';
import { committedReport } from './results-table.js';
import { drawnScale, scaleFigure } from './scale-figure.js';
import { filesUnder } from './sources.js';

const folder = 'docs/experiments';

/**
 * The figures in `docs/experiments` as the committed results give them, by path from the root of the checkout: those of
 * experiments whose runs are all committed (until then a figure is that of an earlier experiment), and that of cost by scale.
 */
export async function updatedFigures(): Promise<Map<string, string>> {
  const figures = new Map<string, string>();
  for (const path of (await filesUnder(folder)).filter((path) => path.endsWith('.svg'))) {
    const name = path.slice(folder.length + 1, -'.svg'.length);
    if (!existsSync(join(packageRoot, folder, 'results', name))) continue;
    const { sweep, cells, svg } = await committedReport(name);
    const isComplete = cells.every(({ runs }) => runs >= sweep.seeds.length);
    if (isComplete) figures.set(path, `${svg}\n`);
  }
  return figures.set(scaleFigure, `${await drawnScale()}\n`);
}
