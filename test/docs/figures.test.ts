import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { updatedFigures } from './figures.js';
import { scaleCharts } from './scale-figure.js';

describe('the figures in the documentation', async () => {
  const figures = await updatedFigures();

  it('the figures of complete experiments are found', () => {
    assert(figures.has('docs/experiments/staleness.svg'));
  });

  it('the figure of cost by scale needs every point', () => {
    assert.throws(
      () => scaleCharts({ results: {} }),
      /nothing measured for "1 actors, adapter of 0/,
    );
  });

  for (const [path, figure] of figures) {
    it(`the figure ${path} is that of the committed results`, async () => {
      const committed = await readFile(join(packageRoot, path), 'utf8');
      assert(committed === figure, 'run npm run docs');
    });
  }
});
