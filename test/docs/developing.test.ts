import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';

describe('docs/developing.md', () => {
  let page: string;
  before(async () => {
    page = await readFile(join(packageRoot, 'docs/developing.md'), 'utf8');
  });

  it('docs/developing.md explains the life of a rollout in at most 40 files', () => {
    const files = new Set(pathsIn(section(page, 'The life of a rollout')));
    assert(files.size > 20, `${files.size} files were found`);
    assert(files.size <= 40, `it names ${files.size} files`);
  });

  it('docs/developing.md names an existing metric for each gate but the last', async () => {
    const metrics = await readFile(join(packageRoot, 'docs/metrics.md'), 'utf8');
    const named = [...section(page, 'Who waits for whom').matchAll(/`(rl_\w+|local_\w+)`/g)];
    assert(named.length >= 9);
    for (const [, name] of named) assert(metrics.includes(`\`${name}\``), name);
  });
});

function pathsIn(text: string): string[] {
  return [...text.matchAll(/`((?:\w[\w-]*\/)+[\w.-]*)`/g)].map(([, path]) => path!);
}

function section(page: string, title: string): string {
  return page.split(/^## /m).find((part) => part.startsWith(`${title}\n`))!;
}
