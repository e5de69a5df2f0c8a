import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';
import { filesUnder } from './sources.js';

const folders = 'actor cli deploy learner local-backend reward-service shared tools'.split(' ');

/** Words of the house style's list: each has a plainer one, such as "no service", "again" or "reports". Spelling is American. */
const replaced = new RegExp(
  '\\b(?:nobody|somebody|everybody|anybody|no one|whoever|anew|for ever|in vain|shall|the like|it says|' +
    'learnt|(?:col|neighb|fav|behavi)our\\w*|(?:minim|maxim|normal|recogn|quant|initial|synchron)is(?:e|es|ed|ing)|' +
    'tells?|telling|(?:is|are|was|were|been?) told|(?:comes?|came) to)\\b',
  'gi',
);

describe('the wording of the sources', () => {
  it('the sources have no word that the house style replaces by a plainer one', async () => {
    const paths = (await Promise.all(folders.map(filesUnder)))
      .flat()
      .filter((path) => /\.(?:ts|mjs|py|ya?ml|conf|env)$/.test(path) && !path.endsWith('_pb.ts'));
    assert(paths.length > 300, `${paths.length} files were found`);
    const found = await Promise.all(paths.map(async (path) => wordsIn(path, await textOf(path))));
    assert.deepEqual(found.flat(), []);
  });
});

/** A source without line ends in its comments, where a phrase may be broken. */
async function textOf(path: string): Promise<string> {
  const text = await readFile(join(packageRoot, path), 'utf8');
  return text.replace(/\n\s*(?:\*|\/\/|#) /g, ' ');
}

/** The words with their surroundings. */
function wordsIn(path: string, text: string): string[] {
  return [...text.matchAll(replaced)].map(
    ({ index }) => `${path}: ${text.slice(Math.max(0, index - 30), index + 40)}`,
  );
}
