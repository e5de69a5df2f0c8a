import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { packageRoot } from '../../shared/base/package-root.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { TicketIds } from '../../shared/wire/ticket-ids.js';
import type { DeclaredMetric } from './metrics-table.js';
import { blocksOf, patched } from './pages.js';

const run = promisify(execFile);
const graphTest = 'test/shared/model/loss-graph.test';

/** The recipes that change code, and the file that each of their diffs is for. */
const recipes: Readonly<Record<string, readonly string[]>> = {
  'Add a setting': ['shared/run/hyperparameters.ts'],
  'Add a loss': ['shared/rl/losses.ts', 'shared/model/loss-graph.ts'],
  'Add a metric': ['learner/step/step-report.ts'],
};

describe('the recipes of docs/developing.md', { timeout: 600_000 }, () => {
  let copy: string;
  before(async () => {
    copy = await mkdtemp(join(tmpdir(), 'offbeat-recipes-'));
    for (const path of ['learner', 'shared', `${graphTest}.ts`, 'tsconfig.json', 'package.json']) {
      await cp(join(packageRoot, path), join(copy, path), { recursive: true });
    }
    await symlink(join(packageRoot, 'node_modules'), join(copy, 'node_modules'));
  });
  after(() => rm(copy, { recursive: true }));

  const compiledModule = (path: string) => pathToFileURL(join(copy, 'dist', path)).href;

  it('the recipes compile as printed, each in the files that it names', async () => {
    const page = await readFile(join(packageRoot, 'docs/developing.md'), 'utf8');
    for (const [title, files] of Object.entries(recipes)) {
      const section = page.split(`### ${title}\n`)[1]!.split(/^##/m)[0]!;
      const diffs = blocksOf(section, 'diff');
      assert.equal(diffs.length, files.length, title);
      for (const [i, path] of files.entries()) {
        assert(section.includes(`\`${path}\``), path);
        const file = join(copy, path);
        await writeFile(file, patched(await readFile(file, 'utf8'), diffs[i]!));
      }
    }

    const project = {
      extends: './tsconfig.json',
      compilerOptions: { incremental: false, tsBuildInfoFile: null },
      include: [],
      files: [
        'learner/config.ts',
        'learner/step/step-report.ts',
        'learner/tickets/ticket-source.ts',
        `${graphTest}.ts`,
      ],
    };
    await writeFile(join(copy, 'tsconfig.recipes.json'), JSON.stringify(project));
    const compiler = join(copy, 'node_modules/typescript/bin/tsc');
    const { stdout } = await run(process.execPath, [compiler, '-p', 'tsconfig.recipes.json'], {
      cwd: copy,
    }).catch((caught: unknown) => caught as { stdout: string });
    assert.equal(stdout, '');
  });

  it('the recipe for a setting makes it a flag of the learner and a field of the configuration of a run', async () => {
    const { LearnerConfig, runConfig } = (await import(
      compiledModule('learner/config.js')
    )) as typeof import('../../learner/config.js');
    const settings = LearnerConfig.parse({ run: 'a-run', minTokens: '3' });
    const fitted = { ...settings, learningRate: 1e-3, maxTokens: 20 };
    const { sampling } = runConfig(fitted, {} as Parameters<typeof runConfig>[1]);
    assert.deepEqual(sampling, { temperature: 1, maxTokens: 20, minTokens: 3 });
    const { RunConfig } = (await import(
      compiledModule('shared/run/run-config.js')
    )) as typeof import('../../shared/run/run-config.js');
    assert(RunConfig.shape.sampling.safeParse(sampling).success);
    assert(!RunConfig.shape.sampling.safeParse({ ...sampling, minTokens: '3' }).success);
  });

  it('the recipe for a setting leaves the tickets of a run as actors expect them', async () => {
    const { TicketSource } = (await import(
      compiledModule('learner/tickets/ticket-source.js')
    )) as typeof import('../../learner/tickets/ticket-source.js');
    const sampling = { temperature: 1, maxTokens: 20, minTokens: 3 };
    const config = { seed: 0, groupSize: 4, sampleLag: 0, replayShare: 0, sampling };
    const ids = new TicketIds({ v: 1, secret: 'secret', keyedFrom: 0 });
    const tickets = new TicketSource(config, ['p'], { ids, margin: 1, state: undefined });
    Ticket.parse(tickets.ticketAt(0, 0, 0));
  });

  it('the recipe for a loss makes one that the learner accepts, with its defaults', async () => {
    const { Objective, lossConfig } = (await import(
      compiledModule('learner/settings/objective.js')
    )) as typeof import('../../learner/settings/objective.js');
    const settings = Objective.parse({ loss: 'truncated', clipLow: 0.5 });
    const expected = { clip_low_threshold: 0.5, clip_high_threshold: 2 };
    assert.deepEqual(lossConfig(settings), expected);
    assert.match(Objective.shape.clipHigh.description!, /truncated 2/);
  });

  it('the recipe for a loss gives the same gradient in the graph as in the table', async () => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env; // a separate test, not a part of this one
    const { stdout } = await run(process.execPath, [join(copy, `dist/${graphTest}.js`)], { env });
    assert.match(stdout, /the graph of truncated has/);
  });

  it('the recipe for a metric exports it to Prometheus', async () => {
    const script = fileURLToPath(new URL('./print-metrics.js', import.meta.url));
    const module = compiledModule('learner/step/step-report.js');
    const { stdout } = await run(process.execPath, [script, module]);
    const found = (JSON.parse(stdout) as DeclaredMetric[]).find(
      ({ name }) => name === 'rl_ratio_spread',
    );
    assert.equal(found?.type, 'gauge');
    assert.match(found.help, /^Distance between the first and the last percentile/);
  });
});
