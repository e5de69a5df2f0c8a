import assert from 'node:assert/strict';
import { rm } from 'node:fs/promises';
import { afterEach, before, beforeEach, describe, it } from 'node:test';
import { Project } from './project.js';
import { importScript, type RunTests, type Staleness } from './scripts.js';

describe('the installed dependencies', () => {
  let staleness: Staleness;
  let project: Project;

  before(async () => {
    staleness = await importScript('staleness.mjs');
  });
  beforeEach(async () => {
    project = await Project.create();
  });
  afterEach(() => project[Symbol.asyncDispose]());

  const why = () => staleness.whyInstallIsStale(project.root);
  const typescript = { version: '1.0.0', integrity: 'sha512-a' };

  it('the dependencies are up to date even if packages for other systems are absent', () => {
    assert.equal(why(), undefined);
  });

  it('the dependencies are stale if npm did not finish', async () => {
    await project.write('node_modules/.package-lock.json', '{');
    assert.equal(why(), 'node_modules is missing or incomplete');
  });

  it('the dependencies are stale if a locked package is absent, as after an install without development packages', async () => {
    await project.write('node_modules/.package-lock.json', { packages: {} });
    assert.equal(why(), 'node_modules/typescript is missing');
  });

  it('the dependencies are stale if a package is locked to other content', async () => {
    const changed = { ...typescript, integrity: 'sha512-c' };
    await project.write('package-lock.json', { packages: { 'node_modules/typescript': changed } });
    assert.equal(why(), 'node_modules/typescript has changed');
  });
});

describe('the compiled output', () => {
  let staleness: Staleness;
  let project: Project;

  before(async () => {
    staleness = await importScript('staleness.mjs');
  });
  beforeEach(async () => {
    project = await Project.create();
    await project.write('test/a.test.ts', '1');
    await project.write('dist/test/a.test.js', '1');
    await project.write('dist/bundle/cli.js', '');
    await project.write('dist/.fingerprint', staleness.sourceFingerprint(project.root));
  });
  afterEach(() => project[Symbol.asyncDispose]());

  const why = () => {
    const { root } = project;
    return staleness.whyBuildIsStale(root, staleness.sourceFingerprint(root), 'dist/.fingerprint');
  };

  it('the compiled output is up to date if every source was compiled in its current state', async () => {
    assert.equal(why(), undefined);
    await project.write('test/a.test.ts', '1'); // another time, the same content
    assert.equal(why(), undefined);
  });

  it('the compiled output is stale if a source is changed or added, or the compiler settings change', async () => {
    await project.write('test/a.test.ts', '2');
    assert.equal(why(), 'the sources have changed');
    await project.write('test/a.test.ts', '1');
    await project.write('test/b.ts', '');
    assert.equal(why(), 'the sources have changed');
  });

  it('the compiled output is stale if the bundler works otherwise', async () => {
    await project.write('cli/bundle.mjs', '');
    assert.equal(why(), 'the sources have changed');
  });

  it('the compiled output is stale if one of its files is missing', async () => {
    await project.write('test/b.ts', '');
    await project.write('dist/.fingerprint', staleness.sourceFingerprint(project.root));
    assert.equal(why(), 'dist/test/b.js is missing');
    await project.write('dist/test/b.js', '');
    await rm(project.path('dist/bundle/cli.js'));
    assert.equal(why(), 'dist/bundle/cli.js is missing');
  });

  it('the compiled output is orphaned exactly where its source is gone', async () => {
    await project.write('dist/test/gone.test.js', '');
    await project.write('dist/test/gone.test.js.map', '');
    await project.write('dist/.tsbuildinfo', '{}');
    await project.write('dist/bundle/chunk-ABC.js', ''); // of a run that was started before
    const orphans = ['dist/test/gone.test.js', 'dist/test/gone.test.js.map'];
    assert.deepEqual(
      staleness.orphanedOutputs(project.root).sort(),
      orphans.map((name) => project.path(name)),
    );
  });
});

describe('the choice of test files', () => {
  const files = ['test/a/one.test.ts', 'test/a/two.test.ts', 'test/b/one.test.ts'];
  let choose: RunTests['chooseTests'];
  before(async () => {
    ({ chooseTests: choose } = await importScript<RunTests>('run-tests.mjs'));
  });

  it('all test files are chosen without a filter', () => {
    assert.deepEqual(choose(files, []), { files, unmatched: [] });
  });

  it('test files are chosen by parts of their paths, as sources or compiled', () => {
    assert.deepEqual(choose(files, ['a/']).files, files.slice(0, 2));
    assert.deepEqual(choose(files, ['dist/test/b/one.test.js', 'two']).files, files.slice(1));
  });

  it('a filter that matches no test file is reported', () => {
    assert.deepEqual(choose(files, ['two', 'three']).unmatched, ['three']);
  });
});
