/** `npm run mutate -- FOLDER… [flags]`: see `help`. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, statSync } from 'node:fs';
import { cp, mkdtemp, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { transform } from 'esbuild';
import { userErrorCode } from '../../shared/base/exit-codes.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { createRandom } from '../../shared/base/random.js';
import { parseArgs } from '../../shared/service/npm-flags.js';
import { printError } from '../../shared/service/telemetry/print-error.js';
import { mutantsOf, type Mutant } from './mutants.js';
import { nearestTests } from './nearest-tests.js';

const help = `npm run mutate -- FOLDER… [--seed 0] [--count 20] [--tests 6]

Draws --count small faults of the files in the folders by --seed: another boundary, operator, number or condition, a
removed statement or filter. Each is compiled into a copy of this checkout, where the unit tests that import its file
run, the nearest --tests files of them. Prints each fault, and at the end those that no test notices.
`;

const { values, positionals: folders } = parseArgs('mutate', {
  options: {
    seed: { type: 'string', default: '0' },
    count: { type: 'string', default: '20' },
    tests: { type: 'string', default: '6' },
    help: { type: 'boolean', short: 'h', default: false },
  },
  allowPositionals: true,
});
if (values.help) {
  process.stdout.write(help);
  process.exit();
}
const isFolder = (path: string) =>
  statSync(join(packageRoot, path), { throwIfNoEntry: false })?.isDirectory() === true;
const isCount = (value: string) => /^[1-9]\d*$/.test(value);
const problems = [
  ...(folders.length === 0 ? ['no folder is given; name one, such as shared/rl'] : []),
  ...folders
    .filter((folder) => !isFolder(folder))
    .map((folder) => `there is no folder ${folder} in this checkout; name one, such as shared/rl`),
  ...(['count', 'tests'] as const)
    .filter((flag) => !isCount(values[flag]))
    .map((flag) => `--${flag} is ${values[flag]}; give a whole number of at least 1`),
];
if (problems.length > 0) {
  printError(problems.join('\n'));
  process.exit(userErrorCode);
}
const [count, most] = [Number(values.count), Number(values.tests)];
const drawn = await draw(folders, values.seed, count);
if (drawn.length === 0) {
  printError(
    `nothing in ${folders.join(', ')} has a fault to try; name a folder of TypeScript sources`,
  );
  process.exit(userErrorCode);
}

const startMs = 30_000; // on busy cores

interface DrawnMutant extends Mutant {
  readonly path: string;
}

const copy = await mkdtemp(join(tmpdir(), 'offbeat-mutants-'));
process.once('exit', () => {
  rmSync(copy, { recursive: true });
});
process.once('SIGINT', () => process.exit(130));
process.once('SIGTERM', () => process.exit(143));
await copyCheckout(copy);
const testsOf = await nearestTests(most);
const passing = new Map<string, number>(); // milliseconds by test, of those that pass without a fault
for (const test of new Set(drawn.flatMap(({ path }) => testsOf(path)))) {
  const startedAt = performance.now();
  if (await passes(test, 20 * startMs)) passing.set(test, performance.now() - startedAt);
  else process.stdout.write(`not used, since it fails without a fault: ${test}\n`);
}
const survivors: string[] = [];
for (const mutant of drawn) {
  const tests = testsOf(mutant.path).filter((test) => passing.has(test));
  const killer = await firstToFail(mutant, tests, passing);
  const { path, line, column } = mutant;
  const shown = `${path}:${line}:${column}  ${inOneLine(mutant.before)} → ${inOneLine(mutant.after)}`;
  process.stdout.write(`${killer === undefined ? 'SURVIVED' : 'killed  '}  ${shown}\n`);
  if (killer === undefined) survivors.push(`  ${shown}\n    of ${tests.join(', ') || 'no test'}\n`);
}
process.stdout.write(`${survivors.length} of ${drawn.length} survived\n${survivors.join('')}`);

/** Everything but what is compiled is only linked: it does not change. */
async function copyCheckout(copy: string): Promise<void> {
  for (const name of await readdir(packageRoot)) {
    if (name === 'dist') await cp(join(packageRoot, name), join(copy, name), { recursive: true });
    else await symlink(join(packageRoot, name), join(copy, name));
  }
}

async function draw(folders: readonly string[], seed: string, count: number) {
  const all: DrawnMutant[] = [];
  for (const folder of folders) {
    const names = (await readdir(join(packageRoot, folder), { recursive: true })).sort();
    for (const name of names.filter((name) => /(?<!_pb|\.d)\.ts$/.test(name))) {
      const path = join(folder, name);
      const text = await readFile(join(packageRoot, path), 'utf8');
      all.push(...mutantsOf(text).map((mutant) => ({ ...mutant, path })));
    }
  }
  return createRandom(`mutants ${seed}`).shuffle(all).slice(0, count);
}

async function firstToFail(
  { path, source }: DrawnMutant,
  tests: readonly string[],
  passing: ReadonlyMap<string, number>,
): Promise<string | undefined> {
  const compiled = join(copy, 'dist', path.replace(/\.ts$/, '.js'));
  const original = await readFile(compiled);
  const { code } = await transform(source, {
    ...{ loader: 'ts', target: 'es2022' },
    tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } },
  });
  await writeFile(compiled, code);
  try {
    for (const test of tests) {
      if (!(await passes(test, startMs + 5 * passing.get(test)!))) return test;
    }
    return undefined;
  } finally {
    await writeFile(compiled, original);
  }
}

/** Whether a test file passes in the copy in time. A fault may make it hang, so its whole process group is ended. */
async function passes(test: string, mostMs: number): Promise<boolean> {
  const compiled = join('dist', test.replace(/\.ts$/, '.js'));
  const options = { cwd: copy, stdio: 'ignore', detached: true } as const;
  const child = spawn(process.execPath, ['--test', compiled], options);
  const end = () => {
    try {
      process.kill(-child.pid!, 'SIGKILL');
    } catch {
      // it has ended, and has left nothing
    }
  };
  const timer = setTimeout(end, mostMs);
  process.once('exit', end);
  const [code] = (await once(child, 'exit')) as [number | null];
  clearTimeout(timer);
  process.off('exit', end);
  end();
  return code === 0;
}

/** A replaced piece of code, shortened. */
function inOneLine(code: string): string {
  const short = code.replace(/\s+/g, ' ');
  return short.length > 60 ? `${short.slice(0, 57)}…` : short;
}
