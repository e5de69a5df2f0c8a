/**
 * The program of the npm scripts: prepares this checkout, then runs the task. Plain JavaScript without
 * dependencies, since it installs them.
 */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { program } from './staleness.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const [, , task, ...words] = process.argv;

/**
 * Tasks that are our programs: they run in this process, so it ends with their exit code. Those with
 * `needsNats` start nats-servers themselves, as tests do; the others look for one when they need it.
 */
const programs = {
  start: { file: program, args: ['up', ...words] },
  sweep: { file: program, args: ['sweep', ...words] },
  simulate: { file: 'dist/tools/simulate/main.js', args: words },
  pretrain: { file: 'dist/tools/pretrain/main.js', args: words },
  mutate: { file: 'dist/tools/mutate/main.js', args: words, needsNats: true },
  docs: { file: 'dist/test/docs/main.js', args: words },
  monitoring: { file: 'dist/deploy/monitoring.js', args: words },
  bench: { file: 'dist/test/bench/main.js', args: words, needsNats: true },
  'test:elastic': { file: 'dist/test/elastic/main.js', args: words, needsNats: true },
  'test:chaos': { file: 'dist/test/chaos/main.js', args: words, needsNats: true },
  'test:gpu': { file: 'dist/tools/gpu-test/main.js', args: words, needsNats: true },
  'test:compat': { file: 'dist/test/compat/main.js', args: words, needsNats: true },
};

const [major, minor] = process.versions.node.split('.').map(Number);
if (major < 20 || (major === 20 && minor < 11)) {
  fail(`Node.js 20.11 or newer is needed; this is ${process.versions.node} (${process.execPath})`);
}
const tasks = [...Object.keys(programs), 'test', 'build'].join(', ');
if (task === '--help' || task === '-h') {
  process.stdout.write(
    `node cli/bootstrap.mjs TASK [WORDS]: installs the packages and compiles, if needed, then runs TASK: ${tasks}.\n` +
      'npm run TASK -- WORDS does the same; npx offbeat help lists the commands.\n',
  );
  process.exit(0);
}
if (!['test', 'build'].includes(task) && !Object.hasOwn(programs, task ?? '')) {
  fail(`unknown task ${task ?? '(none)'}; one of ${tasks} is expected`);
}

const { endWithLauncher } = await import('./children.mjs');
endWithLauncher();
const { prepare } = await import('./prepare.mjs');
const problem = await prepare(root);
if (problem !== undefined) fail(problem);

if (task === 'test') {
  const { runTests } = await import('./run-tests.mjs');
  process.exitCode = await runTests(root, words);
} else if (task !== 'build') {
  const { file, args, needsNats = false } = programs[task];
  const path = join(root, file);
  if (!existsSync(path)) fail(`npm run ${task} has nothing to run yet: ${file} is missing`);
  if (needsNats) {
    const { provideNatsServer } = await import('./run-tests.mjs');
    const noNats = await provideNatsServer(root);
    if (noNats !== undefined) fail(noNats);
  }
  process.setSourceMapsEnabled(true);
  process.argv = [process.execPath, path, ...args];
  await import(pathToFileURL(path).href);
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}
