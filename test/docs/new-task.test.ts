import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import {
  access,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/package-root.js';
import { blocksOf, filesOf, patched } from './pages.js';

const run = promisify(execFile);

const sources = ['actor', 'cli', 'learner', 'local-backend', 'reward-service', 'shared', 'tools'];
/** The compiled checkout; only sources that depend on the list of tasks are recompiled. */
const compiled = sources.map((folder) => `dist/${folder}`);

describe('the task that docs/new-task.md shows', { timeout: 600_000 }, () => {
  let copy: string;
  let page: string;
  before(async () => {
    page = await readFile(join(packageRoot, 'docs/new-task.md'), 'utf8');
    copy = await mkdtemp(join(tmpdir(), 'offbeat-new-task-'));
    for (const path of [...sources, ...compiled, 'package.json', 'tsconfig.json']) {
      await cp(join(packageRoot, path), join(copy, path), { recursive: true });
    }
    await symlink(join(packageRoot, 'node_modules'), join(copy, 'node_modules'));
  });
  after(() => rm(copy, { recursive: true }));

  it('the task of docs/new-task.md compiles as printed, with one more line in the list of tasks', async () => {
    await mkdir(join(copy, 'shared/tasks/largest'));
    await writeFile(join(copy, 'shared/tasks/largest/task.ts'), blocksOf(page, 'ts')[0]!);
    const registry = join(copy, 'shared/tasks/registry.ts');
    const changed = patched(await readFile(registry, 'utf8'), blocksOf(page, 'diff')[0]!);
    await writeFile(registry, changed);

    const project = {
      extends: './tsconfig.json',
      compilerOptions: { incremental: false, tsBuildInfoFile: null },
      include: [],
      files: await filesThatKnowTasks(copy),
    };
    await writeFile(join(copy, 'tsconfig.tasks.json'), JSON.stringify(project));
    const compiler = join(copy, 'node_modules/typescript/bin/tsc');
    const { stdout } = await run(process.execPath, [compiler, '-p', 'tsconfig.tasks.json'], {
      cwd: copy,
    }).catch((caught: unknown) => caught as { stdout: string });
    assert.equal(stdout, '');
    await access(join(copy, 'dist/shared/tasks/largest/task.js'));
    await run(process.execPath, [join(packageRoot, 'cli/bundle.mjs'), copy]);
  });

  it('the task of docs/new-task.md trains a step with the data printed there', async () => {
    const { name, text } = filesOf({ path: 'docs/new-task.md', text: page })[0]!;
    await writeFile(join(copy, name), text);
    const task = ['--task=largest', `--dataset=${name}`, '--test-size=1', '--eval-problems=1'];
    // The embedded model cannot solve this task, so the rewards of a group are likely to be equal.
    const batch = ['--groups-per-batch=4', '--group-size=4', '--zero-variance=train'];
    const flags = [...task, ...batch, '--max-steps=1', '--actors=1', '--no-dashboard', '--json'];
    const cli = join(copy, 'dist/bundle/cli.js');
    const { stdout } = await run(process.execPath, [cli, 'up', '--run=largest', ...flags], {
      cwd: copy,
    });
    const summary = JSON.parse(stdout.trimEnd().split('\n').at(-1)!) as Record<string, unknown>;
    assert.deepEqual([summary['steps'], summary['reason']], [1, 'max_steps']);
    const config = await readFile(join(copy, 'runs/largest/config.json'), 'utf8');
    assert.equal((JSON.parse(config) as { task: { name: string } }).task.name, 'largest');
  });
});

/**
 * The sources that import the list of tasks, so their types depend on it. Entry points are excluded: each
 * imports its whole service, but only calls functions that the others declare.
 */
async function filesThatKnowTasks(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const source of sources) {
    for (const name of await readdir(join(folder, source), { recursive: true })) {
      if (!name.endsWith('.ts') || name.endsWith('main.ts')) continue;
      const text = await readFile(join(folder, source, name), 'utf8');
      if (text.includes("tasks/registry.js'")) found.push(join(source, name));
    }
  }
  assert(found.length > 5, found.join(', '));
  return found;
}
