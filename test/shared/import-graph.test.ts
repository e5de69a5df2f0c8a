import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import { describe, it } from 'node:test';
import { packageRoot } from '../../shared/base/package-root.js';

/**
 * The compiled files that a program loads, from its first one on: what is imported as a value (the compiler
 * drops imports of types) and the scripts that it starts in a separate thread or process.
 */
async function filesLoadedBy(...entries: string[]): Promise<Set<string>> {
  return reached(importedPath, entries);
}

async function reached(imported: RegExp, entries: readonly string[]): Promise<Set<string>> {
  const loaded = new Set(entries);
  for (const file of loaded) {
    const text = await readFile(join(packageRoot, 'dist', file), 'utf8');
    for (const [, path] of text.matchAll(imported)) {
      loaded.add(normalize(join(dirname(file), path!)));
    }
  }
  return loaded;
}

const importedPath =
  /(?:^(?:import|export)\b[^'"]*|\bimport\(|\bnew URL\()['"](\.\.?\/[^'"]*\.js)['"]/gm;
/** What is imported before the first statement runs. */
const importedAtStart = /^(?:import|export)\b(?:[^'"=]*\bfrom)?\s*['"](\.\.?\/[^'"]*\.js)['"]/gm;

/** Those of the loaded files that lie in no folder of `allowed`. */
function outside(allowed: readonly string[], loaded: ReadonlySet<string>): string[] {
  return [...loaded].filter((file) => !allowed.some((folder) => file.startsWith(`${folder}/`)));
}

describe('the files that a program loads', () => {
  it('the learner loads the files of its tasks and the downloader, so this test can see them', async () => {
    const loaded = await filesLoadedBy('learner/main.js');
    for (const file of [
      'shared/tasks/countdown/score.js',
      'shared/tasks/integer-answers/score.js',
      'shared/service/hub/download.js',
      'shared/tasks/data/parquet-process.js',
    ]) {
      assert(loaded.has(file), `${file} is missed`);
    }
  });

  it('the local backend loads no file about rewards, problems or NATS', async () => {
    const loaded = await filesLoadedBy('local-backend/main.js', 'local-backend/config.js');
    const allowed = ['local-backend', ...lowest, 'shared/rl', 'shared/model', 'shared/tinker'];
    assert.deepEqual(outside(allowed, loaded), []);
    assert(loaded.has('local-backend/training-worker.js'), 'its threads are missed');
  });

  it('the Tinker client loads only its own files, the mathematics and the telemetry', async () => {
    const loaded = await filesLoadedBy('shared/tinker/client.js');
    assert.deepEqual(outside([...lowest, 'shared/rl', 'shared/tinker'], loaded), []);
    assert(loaded.size > 20, `it loads ${loaded.size} files`);
  });

  it('the broker loads only its own files, the messages and the telemetry', async () => {
    const loaded = await filesLoadedBy('shared/broker/connect.js', 'shared/broker/consume.js');
    assert.deepEqual(outside([...lowest, 'shared/broker', 'shared/wire'], loaded), []);
    assert(!loaded.has('shared/run/run-config.js'), "it loads the run's configuration");
    assert(loaded.size > 40, `it loads ${loaded.size} files`);
  });

  it('the offbeat command imports no command before it knows which one is meant', async () => {
    const loaded = await reached(importedAtStart, ['cli/cli.js']);
    assert.deepEqual(outside([...lowest, 'cli'], loaded), []);
    const ofCli = [...loaded].filter((file) => file.startsWith('cli/'));
    assert.deepEqual(ofCli.sort(), ['cli/cli.js', 'cli/end-with-npx.js', 'cli/services.js']);
  });

  it('a start imports no large package that only some runs need', async () => {
    const large = [
      '@bufbuild/protobuf',
      '@huggingface/transformers',
      '@opentelemetry',
      'csv-parse',
      'hyparquet',
      'onnxruntime-node',
    ];
    const programs = {
      'cli/up/up.js': large,
      'actor/main.js': large,
      'reward-service/main.js': large,
      'learner/main.js': large.filter((name) => name !== '@bufbuild/protobuf'), // of the Tinker API
    };
    for (const [program, unwanted] of Object.entries(programs)) {
      const packages = await packagesImportedAtStart(program);
      assert(packages.has('zod'), 'no package is seen');
      const found = unwanted.filter((name) => [...packages].some((used) => used.startsWith(name)));
      assert.deepEqual(found, [], program);
    }
  });
});

async function packagesImportedAtStart(program: string): Promise<Set<string>> {
  const files = await reached(importedAtStart, [program]);
  const texts = await Promise.all(
    [...files].map((file) => readFile(join(packageRoot, 'dist', file), 'utf8')),
  );
  const imports = texts.flatMap((text) => [
    ...text.matchAll(/^import\b[^'"]*['"]([^.'"][^'"]*)['"]/gm),
  ]);
  return new Set(imports.map(([, name]) => name!));
}

/** What every program has: errors, configuration, logs, metrics. */
const lowest = ['shared/base', 'shared/service'];
