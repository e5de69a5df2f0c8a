import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';

/** Tests that start servers, build documentation or take minutes. */
const slowTests = /^test\/(?:integration|chaos|compat|elastic|docs|bench|image|deploy)\//;

/**
 * Finds the unit tests that load a source, nearest first by the imports between them.
 *
 * @param most as many of them.
 */
export async function nearestTests(most: number): Promise<(path: string) => string[]> {
  const distances = new Map<string, [test: string, distance: number][]>(); // by source
  const names = (await readdir(join(packageRoot, 'test'), { recursive: true })).sort();
  const imports = new Map<string, string[]>();
  for (const test of names.map((name) => join('test', name))) {
    if (!test.endsWith('.test.ts') || slowTests.test(test)) continue;
    const found = new Map([[test, 0]]); // grows while it is read
    for (const [file, distance] of found) {
      if (distance > 0) distances.set(file, [...(distances.get(file) ?? []), [test, distance]]);
      if (!imports.has(file)) imports.set(file, await importsOf(file));
      for (const next of imports.get(file)!) {
        if (!found.has(next)) found.set(next, distance + 1);
      }
    }
  }
  return (path) =>
    (distances.get(path) ?? [])
      .toSorted(([, a], [, b]) => a - b)
      .slice(0, most)
      .map(([test]) => test);
}

/** The sources that a source loads: the compiler drops imports of types. */
async function importsOf(path: string): Promise<string[]> {
  const text = await readFile(join(packageRoot, 'dist', path.replace(/\.ts$/, '.js')), 'utf8');
  const pattern =
    /(?:^(?:import|export)\b[^'"]*|\bimport\(|\bnew URL\()['"](\.\.?\/[^'"]*\.js)['"]/gm;
  return [...text.matchAll(pattern)]
    .map(([, target]) => normalize(join(dirname(path), target!)).replace(/\.js$/, '.ts'))
    .filter((target) => !target.startsWith('..') && existsSync(join(packageRoot, target)));
}
