import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeFlags } from '../../shared/service/config-help.js';
import { UserError } from '../../shared/base/errors.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { Environment } from '../../shared/service/config.js';
import { checkLogLevel } from '../../shared/service/telemetry/logger.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import { alignedLines } from '../columns.js';
import { fileLogger } from '../processes/file-logger.js';
import { FleetError } from '../processes/fleet.js';
import { ensureNatsServer } from '../nats-server/ensure.js';
import { createScreen } from '../up/screen.js';
import { listenForStop } from '../processes/stop-signals.js';
import { backendPlace } from './open-weights.js';
import { EvalConfig, evalService, loadEvalConfig } from './eval-config.js';
import { findRun, type FoundRun } from '../existing-run/find-run.js';
import { findVersion } from './find-version.js';
import { heldOut, measure } from './measure.js';
import { withProblems } from './other-problems.js';
import { readStore } from '../existing-run/read-store.js';
import { areWeightsOfTheRun, refuseRetired } from './refuse-retired.js';
import { statesAtServer, statesInFolder } from './saved-states.js';
import { printError } from '../../shared/service/telemetry/print-error.js';
import type { EvalResult, SolveRates } from '../../shared/wire/eval-result.js';
import type { SavedState } from '../../shared/wire/ledger.js';
import { percent } from '../up/summary.js';
import { readyMs } from '../up/up-config.js';

/** What `offbeat eval` does, and its flags. */
export function evalHelp(): string {
  return `offbeat eval: measures a policy version of a run on the held-out problems.

The run may be over or still training: it is only read. nats-server, actors, a reward service and,
where the weights must be restored, a backend are started for this alone, and end with it.

${describeFlags(EvalConfig.shape, evalService)}
`;
}

/**
 * Evaluates a version of a run and returns the exit code: 0 when there is a result, the signal's code after
 * Ctrl-C, else 1. When it returns, none of its processes is left. Their logs are kept if it failed after it had started.
 *
 * @throws {UserError} for an unknown run or version, if its weights or data no longer exist, or if no answer came.
 */
export async function evalRun(argv: readonly string[], env: Environment): Promise<number> {
  const request = loadEvalConfig(argv, env);
  checkLogLevel(env);
  const found = await findRun(request);
  const plain = { write: (text: string) => process.stderr.write(text) };
  const stream = request.json ? plain : process.stdout;
  const screen = createScreen({ stream, env, now: Date.now });
  const stop = listenForStop(screen.note, 'stopping');
  const folder = await mkdtemp(join(tmpdir(), 'offbeat-eval-'));
  const log = fileLogger('eval', join(folder, 'eval.log'));
  let hasStarted = false;
  let keepsLogs = false;
  try {
    const natsBinary = await ensureNatsServer({ env, report: screen.note, signal: stop.stop });
    const deadlineMs = readyMs(request);
    const { stop: signal, hurry } = stop;
    const reading = {
      found,
      natsBinary: () => Promise.resolve(natsBinary),
      command: 'eval',
      deadlineMs,
      logFolder: folder,
      signal,
      hurry,
      log,
    };
    const states = (path: string | undefined) => savedStates(found, request, path, reading);
    const kept = await readStore(reading, (broker) => {
      const { run, policy, ledger, events } = broker;
      const store = { run, policy, ledger, events, config: new RunConfigStore(broker) };
      return findVersion(store, request.version, states, signal);
    });
    const version = { ...kept, config: await asMeasured(kept.config, request, screen.warn) };
    const problems = await heldOut(version, request);
    const backend = await backendPlace(found, request);
    const { version: number, step } = version;
    hasStarted = true;
    const measured = measure({
      request,
      found,
      version,
      problems,
      backend,
      natsBinary,
      folder,
      screen,
      stop,
      log,
    });
    const isKept = async () => {
      const manifest = await readStore(reading, ({ policy }) => policy.at(number));
      return manifest !== undefined;
    };
    const result = areWeightsOfTheRun(found, version)
      ? await refuseRetired(measured, { run: found.run, version: number }, isKept)
      : await measured;
    const answer = { run: found.run, step, ...result };
    if (request.json) process.stdout.write(`${JSON.stringify(answer)}\n`);
    else screen.note(`run ${found.run}, version ${number} (step ${step})\n${evalTable(result)}`);
  } catch (caught) {
    const exitCode = stop.exitCode();
    if (exitCode !== undefined) return exitCode; // the error is that of a wait that we aborted
    // A wrong request is not explained by logs.
    keepsLogs = hasStarted || !(caught instanceof UserError);
    if (keepsLogs) printError(`the logs of this evaluation are in ${folder}`);
    if (!(caught instanceof FleetError)) throw caught;
    printError(caught.message);
    return caught.exitCode;
  } finally {
    // A copy of the weights says nothing about a failure, and may be large.
    const rest = keepsLogs ? join(folder, 'checkpoints') : folder;
    await rm(rest, { recursive: true, force: true });
  }
  return 0;
}

/** The run's configuration with the problems and the temperature of this evaluation, whose answers are by one version each. */
async function asMeasured(
  config: RunConfig,
  request: EvalConfig,
  warn: (text: string) => void,
): Promise<RunConfig> {
  const { temperature = config.sampling.temperature } = request;
  const { sampling, ...rest } = await withProblems(config, request, warn);
  return { ...rest, windowPolicy: 'wait', sampling: { ...sampling, temperature } };
}

/** @param path of the state that the run's ledger names. */
async function savedStates(
  found: FoundRun,
  request: EvalConfig,
  path: string | undefined,
  { signal, log }: Pick<Parameters<typeof readStore>[0], 'signal' | 'log'>,
): Promise<SavedState[]> {
  if (found.backendUrl === undefined) {
    return found.folder === undefined ? [] : await statesInFolder(found.folder.checkpoints);
  }
  if (path === undefined) return [];
  const { url: baseUrl, apiKey } = await backendPlace(found, request);
  await using client = await TinkerClient.connect({ baseUrl, apiKey, log, signal });
  return await statesAtServer(client, path);
}

/** A result as a table: one row for all problems, and one per difficulty if there are several. */
export function evalTable(result: EvalResult): string {
  const { temperature, samples, byDifficulty, lost } = result;
  const tries = Object.keys(result.passAt)
    .map(Number)
    .filter((k) => k > 1)
    .sort((a, b) => a - b);
  const row = (name: string, rates: SolveRates): string[] => [
    name,
    String(rates.problems),
    percent(rates.sampled),
    percent(rates.greedy),
    ...tries.map((k) => (k in rates.passAt ? percent(rates.passAt[k]!) : '')),
  ];
  const rows = [
    ['', 'problems', 'sampled', 'greedy', ...tries.map((k) => `pass@${k}`)],
    row('all', result),
    ...(byDifficulty.length > 1
      ? byDifficulty.map(({ difficulty, ...rates }) => row(difficulty, rates))
      : []),
  ];
  const notes = [`sampled: ${samples} answers to a problem at temperature ${temperature}`];
  if (lost > 0) notes.push(`without ${lost} tickets that died`);
  return [...alignedLines(rows, (column) => column > 0), ...notes].join('\n');
}
