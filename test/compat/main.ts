/**
 * `npm run test:compat`: the suites that need real third parties (TuFT, the Tinker SDK, transformers) and
 * so a Python environment, which is made under .cache/python from tools/tuft-cpu/requirements.txt
 * and test/compat/requirements.txt.
 *
 *   npm run test:compat -- [suite …] [--short] [--required] [--list]
 *                          [--setup-minutes N] [--start-within-minutes N]
 *
 * It ends with one table, and with 1 if a check failed. If the environment is unavailable (within
 * --setup-minutes), or a suite could not start in time (--start-within-minutes), suites are skipped with
 * the reason, which is no failure unless --required is given. To register a suite, add it to suites.ts;
 * its interface is in suite.ts.
 */
import { ensurePythonEnvironment } from '../../tools/tuft-cpu/environment.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import { parseArgs } from '../../shared/service/npm-flags.js';
import { runSuite } from './run-suite.js';
import { compatFolder, type Suite } from './suite.js';
import { suites } from './suites.js';
import { hasPassed, table, type Outcome } from './table.js';

const { values, positionals } = parseArgs('test:compat', {
  options: {
    short: { type: 'boolean', default: false },
    required: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
    'setup-minutes': { type: 'string', default: '15' },
    'start-within-minutes': { type: 'string', default: '600' },
  },
  allowPositionals: true,
});
const note = (line: string) => process.stderr.write(`${line}\n`);

const unknown = positionals.find((name) => !suites.some((suite) => suite.name === name));
const setupMinutes = Number(values['setup-minutes']);
const startWithinMinutes = Number(values['start-within-minutes']);
if (values.list) {
  for (const { name, proves } of suites) process.stdout.write(`${name.padEnd(16)} ${proves}\n`);
} else if (unknown !== undefined) {
  note(`no suite ${unknown}; there are ${suites.map(({ name }) => name).join(', ')}`);
  process.exitCode = 2;
} else if (!(setupMinutes > 0) || !(startWithinMinutes > 0)) {
  const given = `${values['setup-minutes']} and ${values['start-within-minutes']}`;
  note(`--setup-minutes and --start-within-minutes are ${given}; expected numbers above 0`);
  process.exitCode = 2;
} else {
  const outcomes = await run();
  process.stdout.write(table(outcomes));
  const isComplete = outcomes.every(({ problem }) => problem === undefined);
  const isGood = outcomes.every(hasPassed) && (isComplete || !values.required);
  process.exitCode = isGood ? 0 : 1;
}

async function run(): Promise<Outcome[]> {
  const chosen = suites.filter(
    ({ name }) => positionals.length === 0 || positionals.includes(name),
  );
  const stop = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.once(name, () => {
      stop.abort(new Error(`stopped by ${name}`));
    });
  }

  const outcomes: Outcome[] = [];
  const deadline = Date.now() + startWithinMinutes * 60_000;
  const runAll = async (some: readonly Suite[], python: string) => {
    for (const suite of some) {
      if (Date.now() > deadline) {
        const message = `not begun after ${startWithinMinutes} min`;
        outcomes.push({ suite: suite.name, checks: [], problem: { kind: 'skipped', message } });
        continue;
      }
      const options = { python, isShort: values.short, signal: stop.signal, note, now: Date.now };
      outcomes.push(await runSuite(suite, options));
    }
  };
  const withPython = chosen.filter(({ needsPython }) => needsPython !== false);
  await runAll(
    chosen.filter((suite) => !withPython.includes(suite)),
    'python3',
  );
  if (withPython.length === 0) return outcomes;

  let python: string;
  try {
    python = await ensurePythonEnvironment({
      requirements: [
        `${compatFolder}../../tools/tuft-cpu/requirements.txt`,
        `${compatFolder}requirements.txt`,
      ],
      env: process.env,
      report: note,
      timeoutMs: setupMinutes * 60_000,
      signal: stop.signal,
    });
  } catch (caught) {
    const kind = caught instanceof UserError ? 'skipped' : 'failed';
    const message = errorText(caught);
    note(`there is no Python environment for these tests: ${message}`);
    const problem = { kind, message } as const;
    return [...outcomes, ...withPython.map(({ name }) => ({ suite: name, checks: [], problem }))];
  }

  await runAll(withPython, python);
  return outcomes;
}
