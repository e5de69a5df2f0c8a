import { z } from 'zod';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { string } from '../../shared/service/config-fields.js';
import { flagsOf, loadConfig, type Environment } from '../../shared/service/config.js';
import { UserError } from '../../shared/base/errors.js';
import { refuseFlagsKeptByNpm } from '../../shared/service/npm-flags.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { makeOutputFolder } from '../../shared/base/make-folder.js';
import { learnerRunConfig, services } from '../../cli/services.js';
import { createScreen, type Screen } from '../../cli/up/screen.js';
import { listenForStop, type StopSignals } from '../../cli/processes/stop-signals.js';
import { formatSeconds } from '../../cli/up/summary.js';
import { lockFolder } from '../../shared/service/folder-lock.js';
import { type AppliedRun, appliedSettings, type ServiceSchemas } from './applied-settings.js';
import { finishedRuns, outdatedText } from './finished-runs.js';
import { refuseEnvironment } from './refuse-environment.js';
import { describe, planRuns, type PlannedRun, resolveSettings } from './plan.js';
import { reportHtml, reportMarkdown } from './report-text.js';
import { reportOf } from './report.js';
import { checkPublishFolder, publishResults, Results, type RunResult } from './results.js';
import { evaluationsOf, forgetWeights, RunFailed, runOne } from './run-one.js';
import { columnsOf, readSweepFile, type Settings, type Sweep } from './sweep-file.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

/** How to run an experiment; its file describes what is run. */
export const SweepConfig = z.object({
  out: string.optional().describe('folder of results and report; sweeps/<its name>.'),
  short: z.boolean().default(false).describe("the file's short form: a trial of the whole."),
  dryRun: z.boolean().default(false).describe('lists the runs without making them.'),
  report: z.boolean().default(false).describe('writes only the report, from the stored results.'),
  publish: string
    .optional()
    .describe(
      'also writes the results to this folder, packed, to be committed; deletes those there of runs that are no longer planned, once every planned run has a result.',
    ),
  keepRuns: z
    .boolean()
    .default(false)
    .describe('keeps streams and weights of finished runs, so that offbeat eval can use them.'),
});
export type SweepConfig = z.infer<typeof SweepConfig> & { readonly file: string };

/** `offbeat-sweep` rather than `sweep` in names of the environment: OFFBEAT_SWEEP_OUT. */
export const sweepService = 'offbeat-sweep';

/** @throws {UserError} listing every problem at once. */
export function loadSweepConfig(argv: readonly string[], env: Environment): SweepConfig {
  refuseFlagsKeptByNpm('sweep', flagsOf(SweepConfig.shape), argv, env);
  const [file, ...flags] = argv;
  if (file === undefined || file.startsWith('-')) {
    throw new UserError(
      `offbeat sweep: the first word is the file of the experiment${file === undefined ? '' : `, not ${file}`}; there are some in docs/experiments`,
    );
  }
  const config = loadConfig(SweepConfig, sweepService, flags, env);
  if (config.dryRun && config.report) {
    throw new UserError('--dry-run writes nothing, so there is no --report; remove one of the two');
  }
  if (config.short && config.publish !== undefined) {
    throw new UserError(
      '--short makes other runs, which would replace the published results of the experiment; remove --publish',
    );
  }
  return { ...config, file };
}

/** The help of `offbeat sweep`, with its flags. */
export function sweepHelp(): string {
  return `offbeat sweep FILE: makes the runs of an experiment, one after another, and writes a report.

The file describes which settings are varied, with which seeds, until when, and what is measured. A
finished run is not repeated unless its settings (also those by default), its model or a file of its
data changed: after an interruption the same command continues. Environment variables that are
settings of the runs are refused. The folder of the experiment has report.html, report.md, plot.svg
and the result of each run.

${describeFlags(SweepConfig.shape, sweepService)}
`;
}

/**
 * Makes an experiment and returns the exit code: 0 when every run has a result, 1 when one failed, the
 * signal's code after Ctrl-C.
 *
 * @throws {UserError} when the file, a setting or a result is wrong, before anything is started.
 */
export async function sweep(argv: readonly string[], env: Environment): Promise<number> {
  const config = loadSweepConfig(argv, env);
  const experiment = await readSweepFile(config.file, config.short);
  const schemas = await serviceSchemas();
  refuseEnvironment(schemas, env, config.file);
  const { furtherEvaluations } = experiment;
  const resolve = (settings: Settings) => resolveSettings(schemas.learner, settings);
  const planned: AppliedRun[] = [];
  for (const run of planRuns(experiment, resolve)) {
    const evaluations = evaluationsOf(run, furtherEvaluations);
    planned.push({ ...run, applied: await appliedSettings(schemas, run.settings, evaluations) });
  }
  const out = config.out ?? join('sweeps', experiment.name);
  const results = new Results(join(out, 'results'));
  const { done, outdated, stored } = await finishedRuns(planned, results, furtherEvaluations);
  if (config.dryRun) {
    process.stdout.write(planText(planned, done, outdated));
    return 0;
  }

  await makeOutputFolder(out, '--out');
  if (config.publish !== undefined) {
    await makeOutputFolder(config.publish, '--publish');
    await checkPublishFolder(config.publish, experiment.name, planned);
  }
  using _lock = await lockFolder(out, 'offbeat sweep');
  const screen = createScreen({ stream: process.stdout, env, now: Date.now });
  const stop = listenForStop(screen.note, 'stopping: the run in progress will be repeated');
  const failures: string[] = [];
  if (outdated.size > 0) screen.note(outdatedText(outdated, config.report));
  if (!config.report) {
    const todo = planned.filter(({ name }) => !done.has(name));
    screen.note(`${experiment.title}: ${planned.length} runs, ${todo.length} to make, in ${out}`);
    for (const run of todo) {
      if (stop.exitCode() !== undefined) break;
      const failure = await makeRun(run, {
        experiment: experiment.name,
        planned,
        done,
        results,
        out,
        env,
        screen,
        stop,
        keepRuns: config.keepRuns,
        further: furtherEvaluations,
      });
      if (failure !== undefined) failures.push(failure);
      await writeReport(out, experiment, planned, done);
    }
  }
  screen.note(await writeReport(out, experiment, planned, config.report ? stored : done));
  if (config.publish !== undefined) {
    const columns = columnsOf(experiment);
    const { deleted, left } = await publishResults(config.publish, planned, done, columns);
    if (deleted.length > 0) {
      screen.note(`deleted from ${config.publish}, no longer of the plan: ${deleted.join(', ')}`);
    }
    if (left.length > 0) {
      screen.warn(
        `${config.publish} still has earlier results of runs that have none now, or are no longer of the plan: ${left.join(', ')}; finish the sweep, or delete them`,
      );
    }
  }
  for (const failure of failures) printError(failure);
  return stop.exitCode() ?? (failures.length > 0 ? 1 : 0);
}

/** Of the services that `offbeat up` starts. */
async function serviceSchemas(): Promise<ServiceSchemas> {
  const names = ['actor', 'reward-service', 'local-backend'] as const;
  const found = names.map(async (name) => [name, await services[name].config()] as const);
  return {
    learner: await services.learner.config(),
    others: Object.fromEntries(await Promise.all(found)),
    runConfig: await learnerRunConfig(),
  };
}

interface MakeOptions {
  readonly experiment: string; // its name
  readonly planned: readonly AppliedRun[];
  readonly done: Map<string, RunResult>;
  readonly results: Results;
  readonly out: string;
  readonly env: Environment;
  readonly screen: Screen;
  readonly stop: StopSignals;
  readonly keepRuns: boolean;
  readonly further: Sweep['furtherEvaluations'];
}

/** Makes one run and keeps its result. Returns why there is none, unless it was stopped. */
async function makeRun(run: AppliedRun, options: MakeOptions): Promise<string | undefined> {
  const { experiment, planned, done, results, out, env, screen, stop, keepRuns, further } = options;
  const runsDir = join(out, 'runs');
  const title = `run ${done.size + 1} of ${planned.length} (${describe(run.choice)}, seed ${run.seed})`;
  const onLine = (line: string) => {
    screen.status(`${title}: ${line.trim()}`);
  };
  screen.status(title);
  try {
    const result = { ...(await runOne(run, { runsDir, env, stop, onLine, further })), experiment };
    await results.write(result);
    done.set(run.name, result);
    if (!keepRuns) await forgetWeights(runsDir, run);
    screen.status('');
    screen.note(`${title}: ${resultText(result)}${timeLeft(planned, done)}`);
    return undefined;
  } catch (caught) {
    screen.status('');
    if (stop.exitCode() !== undefined) return undefined;
    if (!(caught instanceof RunFailed)) throw caught;
    screen.warn(`${title}: failed; continuing with the next run`);
    return caught.message;
  }
}

function resultText({ evals, seconds, reason }: RunResult): string {
  const { sampled, version } = evals.at(-1)!;
  const rate = `${(100 * sampled).toFixed(1)} % solved by version ${version}`;
  return `${rate} after ${formatSeconds(seconds)}${reason === 'max_steps' ? '' : `, ended by ${reason}`}`;
}

function timeLeft(planned: readonly PlannedRun[], done: ReadonlyMap<string, RunResult>): string {
  const left = planned.length - done.size;
  if (left === 0) return '';
  const seconds = [...done.values()].reduce((sum, result) => sum + result.seconds, 0) / done.size;
  return `; about ${formatSeconds(left * seconds)} for the others`;
}

function planText(
  planned: readonly PlannedRun[],
  done: ReadonlyMap<string, RunResult>,
  outdated: ReadonlyMap<string, string>,
): string {
  const lines = planned.map(({ name, choice, seed, settings, samplesPerStep }) => {
    const steps = settings['maxSteps'];
    const samples = typeof steps === 'number' ? `${steps} steps of ${samplesPerStep} samples` : '';
    return `${done.has(name) ? 'done' : '    '}  ${name}  ${describe(choice)}, seed ${seed}  ${samples}`.trimEnd();
  });
  const known = timeLeft(planned, done);
  const notes = outdated.size === 0 ? '' : `${outdatedText(outdated)}\n`;
  return `${lines.join('\n')}\n${notes}${planned.length} runs, ${done.size} of them done${done.size === 0 ? '' : known}\n`;
}

/** Writes the report of the results so far. Returns the table for the terminal. */
async function writeReport(
  out: string,
  experiment: Sweep,
  planned: readonly PlannedRun[],
  done: ReadonlyMap<string, RunResult>,
): Promise<string> {
  const results = planned.flatMap(({ name }) => done.get(name) ?? []);
  const report = reportOf(experiment, planned, results);
  const markdown = reportMarkdown(report);
  await writeFile(join(out, 'report.html'), reportHtml(report));
  await writeFile(join(out, 'report.md'), markdown);
  await writeFile(join(out, 'plot.svg'), `${report.svg}\n`);
  return `${markdown}\nreport: ${join(out, 'report.html')}`;
}
