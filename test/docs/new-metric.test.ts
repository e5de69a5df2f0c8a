import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/package-root.js';
import type { DeclaredMetric } from './metrics-table.js';

const run = promisify(execFile);
const table = 'learner/step/step-report';

describe('the recipe of docs/developing.md for a metric', { timeout: 600_000 }, () => {
  let copy: string;
  before(async () => {
    copy = await mkdtemp(join(tmpdir(), 'offbeat-new-metric-'));
    for (const path of ['learner', 'shared', 'dist/learner', 'dist/shared', 'tsconfig.json']) {
      await cp(join(packageRoot, path), join(copy, path), { recursive: true });
    }
    await cp(join(packageRoot, 'package.json'), join(copy, 'package.json'));
    await symlink(join(packageRoot, 'node_modules'), join(copy, 'node_modules'));
  });
  after(() => rm(copy, { recursive: true }));

  it('compiles as printed, and the metric is exported', async () => {
    const page = await readFile(join(packageRoot, 'docs/developing.md'), 'utf8');
    const [, diff] = /^### Add a metric$[^]*?^```diff\n([^]*?)^```$/m.exec(page)!;
    const lines = diff!.trimEnd().split('\n');
    const kept = lines.filter((line) => !line.startsWith('+')).map((line) => line.slice(1));
    const source = await readFile(join(copy, `${table}.ts`), 'utf8');
    assert.equal(source.split(kept.join('\n')).length, 2, 'the recipe fits one place');
    const changed = source.replace(kept.join('\n'), lines.map((line) => line.slice(1)).join('\n'));
    await writeFile(join(copy, `${table}.ts`), changed);

    const project = {
      extends: './tsconfig.json',
      compilerOptions: { incremental: false, tsBuildInfoFile: null },
      include: [],
      files: [`${table}.ts`],
    };
    await writeFile(join(copy, 'tsconfig.metric.json'), JSON.stringify(project));
    const compiler = join(copy, 'node_modules/typescript/bin/tsc');
    await run(process.execPath, [compiler, '-p', 'tsconfig.metric.json'], { cwd: copy });

    const script = fileURLToPath(new URL('./print-metrics.js', import.meta.url));
    const module = pathToFileURL(join(copy, `dist/${table}.js`)).href;
    const { stdout } = await run(process.execPath, [script, module]);
    const found = (JSON.parse(stdout) as DeclaredMetric[]).find(
      ({ name }) => name === 'rl_ratio_spread',
    );
    assert.equal(found?.type, 'gauge');
    assert.match(found.help, /^Distance between the first and the last percentile/);
  });
});
