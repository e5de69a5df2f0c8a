import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import { errorText } from '../../shared/base/errors.js';
import { givenUpCode } from '../../shared/base/exit-codes.js';
import { parentPipe } from '../../shared/service/parent-pipe.js';
import { offbeatProgram } from '../../shared/base/package-root.js';
import type { StopSignals } from '../../cli/processes/stop-signals.js';
import { asFlags } from '../../cli/up/up-config.js';
import { EvalResult } from '../../shared/wire/eval-result.js';
import { type AppliedRun, flagsOf } from './applied-settings.js';
import { isIn, type PlannedRun } from './plan.js';
import type { FurtherEvaluation } from './sweep-file.js';
import { digestOfData, readRunFolder, type RunResult } from './results.js';
import type { Environment } from '../../shared/service/config.js';

export interface RunOneOptions {
  readonly further: readonly FurtherEvaluation[];
  readonly runsDir: string; // only for this experiment: a folder with the run's name is deleted
  readonly env: Environment;
  readonly stop: StopSignals;
  readonly onLine: (line: string) => void; // progress
}

/** A run that ended without a result. */
export class RunFailed extends Error {
  override readonly name = 'RunFailed';
}

const lastWords = 30;

/**
 * Makes one run with `offbeat up`, as a process that ends with ours. The files of an earlier attempt
 * are deleted first.
 *
 * @throws {RunFailed} with the end of its output, if it ended without a result or was stopped.
 */
export async function runOne(run: AppliedRun, options: RunOneOptions): Promise<RunResult> {
  const { runsDir, further } = options;
  const folder = join(runsDir, run.name);
  await rm(folder, { recursive: true, force: true });
  const dataDigest = await digestOfData(run.settings);
  const startedAt = performance.now();
  const place = [`--run=${run.name}`, `--runs-dir=${runsDir}`];
  await runOffbeat(run, ['up', ...place, ...flagsOf(run)], options);
  const seconds = (performance.now() - startedAt) / 1_000;
  const found = await readRunFolder(folder).catch((cause: unknown) => {
    throw new RunFailed(`${folder} does not have the result of the run: ${errorText(cause)}`, {
      cause,
    });
  });
  const furtherEvals: RunResult['furtherEvals'] = {};
  const evaluations = evaluationsOf(run, further);
  for (const { name, settings } of evaluations) {
    const flags = ['eval', ...place, ...asFlags({ ...settings, json: true })];
    const lines = (await runOffbeat(run, flags, options)).trimEnd().split('\n');
    const { run: _run, step: _step, ...result } = Evaluated.parse(JSON.parse(lines.at(-1)!));
    furtherEvals[name] = EvalResult.parse(result);
  }
  return {
    v: 2,
    ...run,
    ...found,
    ...(dataDigest !== undefined && { dataDigest }),
    furtherEvals,
    furtherSettings: Object.fromEntries(evaluations.map(({ name, settings }) => [name, settings])),
    seconds,
    finishedAt: new Date().toISOString(),
    machine: thisMachine(),
  };
}

/** The further evaluations that a run gets. */
export function evaluationsOf(
  { choice }: Pick<PlannedRun, 'choice'>,
  further: readonly FurtherEvaluation[],
): FurtherEvaluation[] {
  return further.filter(({ where }) => isIn(choice, where));
}

/** Whether a result has each of its further evaluations, with the settings of now. */
export function isEvaluated(
  result: Pick<RunResult, 'choice' | 'furtherSettings' | 'furtherEvals'>,
  further: readonly FurtherEvaluation[],
): boolean {
  const { furtherEvals, furtherSettings } = result;
  return evaluationsOf(result, further).every(
    ({ name, settings }) =>
      name in furtherEvals &&
      // Results of earlier versions do not have them.
      isDeepStrictEqual(furtherSettings[name] ?? settings, settings),
  );
}

/** What `offbeat eval --json` prints. */
const Evaluated = z.looseObject({ run: z.string(), step: z.int() });

/**
 * Runs an `offbeat` command as a process that ends with ours.
 *
 * @returns its standard output.
 * @throws {RunFailed} with the end of its error output, if it failed.
 * @throws the reason of `stop`, if that was given before it started.
 */
async function runOffbeat(
  { name }: PlannedRun,
  args: readonly string[],
  { env, stop, onLine }: RunOneOptions,
): Promise<string> {
  stop.stop.throwIfAborted(); // it is not said again to those who listen from now on
  const child = spawn(process.execPath, [offbeatProgram, ...args], {
    detached: true, // Ctrl-C reaches only us, and we forward it
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { ...env, [parentPipe]: '1' },
  });
  const ended = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
  const passOn = () => child.kill('SIGTERM');
  const hurry = () => child.kill('SIGKILL'); // its own children end when their pipes close
  stop.stop.addEventListener('abort', passOn);
  stop.hurry.addEventListener('abort', hurry);
  const output: string[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => output.push(text));
  const lines: string[] = [];
  createInterface(child.stderr).on('line', (line) => {
    lines.push(line);
    if (lines.length > lastWords) lines.shift();
    onLine(line);
  });
  try {
    const [code, signal] = await ended;
    if (code !== 0 && code !== givenUpCode) {
      const how = signal === null ? `with code ${code ?? 'unknown'}` : `by ${signal}`;
      throw new RunFailed([`${name}: ${args[0]} ended ${how}:`, ...lines].join('\n  | '));
    }
  } finally {
    stop.stop.removeEventListener('abort', passOn);
    stop.hurry.removeEventListener('abort', hurry);
  }
  return output.join('');
}

/** Deletes the streams and weights of a run whose result is stored. */
export async function forgetWeights(runsDir: string, { name }: PlannedRun): Promise<void> {
  for (const part of ['nats', 'checkpoints']) {
    await rm(join(runsDir, name, part), { recursive: true, force: true });
  }
}

function thisMachine(): string {
  const all = cpus();
  return `${all.length} cores of ${all[0]?.model.trim() ?? 'an unknown kind'}, Node.js ${process.versions.node}`;
}
