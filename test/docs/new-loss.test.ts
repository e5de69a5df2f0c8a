import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/package-root.js';
import { blocksOf, patched } from './pages.js';

const run = promisify(execFile);
const graphTest = 'test/shared/model/loss-graph.test';

describe('the loss that docs/developing.md adds', { timeout: 300_000 }, () => {
  let copy: string;
  before(async () => {
    copy = await mkdtemp(join(tmpdir(), 'offbeat-new-loss-'));
    for (const path of ['shared', 'learner/settings', `${graphTest}.ts`, 'package.json']) {
      await cp(join(packageRoot, path), join(copy, path), { recursive: true });
    }
    await symlink(join(packageRoot, 'node_modules'), join(copy, 'node_modules'));
  });
  after(() => rm(copy, { recursive: true }));

  it('compiles as printed, in two files', async () => {
    const page = await readFile(join(packageRoot, 'docs/developing.md'), 'utf8');
    const [, section] = /^### Add a loss\n([^]*?)^### /m.exec(page)!;
    const changed = ['shared/rl/losses.ts', 'shared/model/loss-graph.ts'];
    const diffs = blocksOf(section!, 'diff');
    assert.equal(diffs.length, changed.length);
    for (const [i, path] of changed.entries()) {
      assert(section!.includes(`\`${path}\``), path);
      const file = join(copy, path);
      await writeFile(file, patched(await readFile(file, 'utf8'), diffs[i]!));
    }

    const project = {
      extends: join(packageRoot, 'tsconfig.json'),
      compilerOptions: { incremental: false, tsBuildInfoFile: null, rootDir: '.', outDir: 'dist' },
      include: [],
      files: ['learner/settings/objective.ts', `${graphTest}.ts`],
    };
    await writeFile(join(copy, 'tsconfig.json'), JSON.stringify(project));
    const compiler = join(copy, 'node_modules/typescript/bin/tsc');
    const { stdout } = await run(process.execPath, [compiler, '-p', copy]).catch(
      (caught: unknown) => caught as { stdout: string },
    );
    assert.equal(stdout, '');
  });

  it('is accepted by the settings of the learner, with its defaults', async () => {
    const path = pathToFileURL(join(copy, 'dist/learner/settings/objective.js')).href;
    const { Objective, lossConfig } = (await import(
      path
    )) as typeof import('../../learner/settings/objective.js');
    const settings = Objective.parse({ loss: 'truncated', clipLow: 0.5 });
    const expected = { clip_low_threshold: 0.5, clip_high_threshold: 2 };
    assert.deepEqual(lossConfig(settings), expected);
    assert.match(Objective.shape.clipHigh.description!, /truncated 2/);
  });

  it('has the same gradient in the graph as in the table', async () => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env; // a test of its own, not a part of this one
    const file = join(copy, 'dist', `${graphTest}.js`);
    const { stdout } = await run(process.execPath, [file], { env });
    assert.match(stdout, /defines for truncated/);
  });
});
