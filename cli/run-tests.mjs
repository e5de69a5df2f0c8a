import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { runChild } from './children.mjs';
import { sourceFiles } from './staleness.mjs';

/** On two cores. Files start processes themselves, but also wait: for leases, restarts and each other's output. */
const concurrency = 3;

/** A test that hangs fails well before the suite's own time limit. */
const timeoutMs = 600_000;

/** Flags of `node --test` that help to find a failure. */
const nodeFlags = [
  ...['name-pattern', 'skip-pattern', 'reporter', 'timeout', 'concurrency'].map((name) => ({
    name: `test-${name}`,
    isSwitch: false,
  })),
  { name: 'test-only', isSwitch: true },
];

/**
 * Runs the compiled tests with a real nats-server.
 *
 * @param {string[]} words flags of `node --test`, as --name=value; anything else chooses the test
 *   files whose path contains it.
 * @returns {Promise<number>} the exit code.
 */
export async function runTests(root, words) {
  const { refuseFlagsKeptByNpm } = await import(
    pathToFileURL(join(root, 'dist/shared/service/npm-flags.js')).href
  );
  try {
    refuseFlagsKeptByNpm('test', nodeFlags, words, process.env);
  } catch (error) {
    process.stderr.write(`${error.message}\n`);
    return 2;
  }
  const filters = words.filter((word) => !word.startsWith('-'));
  const { files, unmatched } = chooseTests(testFiles(root), filters);
  if (unmatched.length > 0) {
    process.stderr.write(`no test file's path contains ${unmatched.join(' or ')}\n`);
    return 1;
  }

  const problem = await provideNatsServer(root);
  if (problem !== undefined) {
    process.stderr.write(`${problem}\n`);
    return 2;
  }

  const flags = words.filter((word) => word.startsWith('-'));
  const reporter = flags.some((flag) => flag.startsWith('--test-reporter'))
    ? []
    : ['--test-reporter=spec'];
  const args = [
    `--import=${pathToFileURL(join(root, 'dist/test/support/source-lines.js')).href}`,
    '--test',
    `--test-concurrency=${concurrency}`,
    `--test-timeout=${timeoutMs}`,
    ...reporter,
    ...flags,
    ...files.map((path) => `dist/${path.replace(/\.ts$/, '.js')}`),
  ];
  const { code } = await runChild(process.execPath, args, { cwd: root });
  return code;
}

/** The sources of the tests: compiled files of deleted sources do not count. */
function testFiles(root) {
  return sourceFiles(root).filter((path) => /^test\/.*\.test\.ts$/.test(path));
}

/**
 * The files that any of the filters matches, or all without a filter.
 *
 * @param {string[]} filters parts of a path, of the source or of what is compiled from it.
 */
export function chooseTests(files, filters) {
  const parts = filters.map((filter) =>
    filter.replace(/^(\.\/)?(dist\/)?/, '').replace(/\.js$/, '.ts'),
  );
  const matches = (path, part) => path.includes(part);
  return {
    files: files.filter((path) => parts.length === 0 || parts.some((part) => matches(path, part))),
    unmatched: filters.filter((_, i) => !files.some((path) => matches(path, parts[i]))),
  };
}

/**
 * Finds a nats-server for all child processes: OFFBEAT_NATS_SERVER names it afterwards. A download is
 * announced on standard error.
 *
 * @param {string} root of the checkout, compiled.
 * @returns {Promise<string | undefined>} why there is none.
 */
export async function provideNatsServer(root) {
  const module = join(root, 'dist/cli/nats-server/ensure.js');
  const { ensureNatsServer } = await import(pathToFileURL(module).href);
  try {
    const report = (line) => process.stderr.write(`${line}\n`);
    const { path } = await ensureNatsServer({ env: process.env, report });
    process.env.OFFBEAT_NATS_SERVER = path;
    return undefined;
  } catch (error) {
    return error.message;
  }
}
