import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { describeFlags } from '../../shared/service/config-help.js';
import { loadConfig, type Environment } from '../../shared/service/config.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { findRun, type FoundRun } from '../existing-run/find-run.js';
import { warningLogger } from '../processes/file-logger.js';
import { listenForStop, untilStopped } from '../processes/stop-signals.js';
import { ReportConfig, reportService } from './config.js';
import { findDecodeIn, readSamples } from './run/sampled-group.js';
import { reportPage } from './page/document.js';
import { folderRun } from './run/folder-run.js';
import { LiveRun } from './run/live-run.js';
import { openRun, type OpenRun } from './run/open-run.js';
import type { RunView } from './run/run-view.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

export function reportHelp(): string {
  return `offbeat report: the page of a run as a single file that loads no other and never changes.

The run may be in progress, here or on the NATS server at --nats-url, or over; then its folder is read.

${describeFlags(ReportConfig.shape, reportService)}
`;
}

/**
 * @returns 0 when the file is written, the signal's code after Ctrl-C.
 * @throws {UserError} for an unknown run, or a file that cannot be written.
 */
export async function report(argv: readonly string[], env: Environment): Promise<number> {
  const config = loadConfig(ReportConfig, reportService, argv, env);
  const found = await findRun(config);
  const stop = listenForStop(printError, 'stopping');
  return await untilStopped(stop, async () => {
    const log = warningLogger('report');
    await using run = await openRun(found, { log, signal: stop.stop, report: printError });
    const state = await stateOf(run, found, stop.stop, log);
    const exitCode = stop.exitCode();
    if (exitCode !== undefined) return exitCode;
    const path = resolve(config.out ?? join(found.folder?.path ?? '.', 'report.html'));
    try {
      await writeFile(path, reportPage(state));
    } catch (cause) {
      throw new UserError(`cannot write ${path} (${errorText(cause)}); choose another --out`, {
        cause,
      });
    }
    process.stdout.write(`${path}\n`);
    return 0;
  });
}

/** A rate needs two snapshots. */
const betweenSnapshotsMs = 3_000;

async function stateOf(
  run: OpenRun,
  { run: name, modelDir, folder }: FoundRun,
  signal: AbortSignal,
  log: Logger,
): Promise<RunView> {
  if (run.kind === 'folder') return await folderRun(name, run.folder);
  const { broker } = run;
  const configs = new RunConfigStore(broker);
  const live = new LiveRun({ broker, configs, findDecode: await findDecodeIn(modelDir), log });
  await live.catchUp(signal);
  await live.now();
  await sleep(betweenSnapshotsMs, undefined, { signal }).catch(() => undefined);
  const view = await live.now();
  if (view.phase !== 'over' || folder === undefined) return view;
  // NATS of a run that is over has at most one of the groups that its page showed last.
  const kept = await readSamples(folder);
  return kept.length > view.samples.length ? { ...view, samples: kept } : view;
}
