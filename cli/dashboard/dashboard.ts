import { aborted } from '../../shared/base/task-scope.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { loadConfig, type Environment } from '../../shared/service/config.js';
import { findRun } from '../existing-run/find-run.js';
import { warningLogger } from '../processes/file-logger.js';
import { listenForStop, untilStopped } from '../processes/stop-signals.js';
import { DashboardConfig, dashboardService } from './config.js';
import { openLiveDashboard } from './live-dashboard.js';
import { folderRun } from './run/folder-run.js';
import { openRun, type OpenRun } from './run/open-run.js';
import { serveDashboard, type Dashboard } from './server.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

export function dashboardHelp(): string {
  return `offbeat dashboard: the page of a run, on this machine, until Ctrl-C.

The run may be in progress, here or on the NATS server at --nats-url, or over; then its folder is read.

${describeFlags(DashboardConfig.shape, dashboardService)}
`;
}

/** How often the folder is read again while a page is open: its run may still write to it. */
const folderEveryMs = 5_000;

/**
 * @returns the signal's code after Ctrl-C.
 * @throws {UserError} for an unknown run, or a port that cannot be used.
 */
export async function dashboard(argv: readonly string[], env: Environment): Promise<number> {
  const config = loadConfig(DashboardConfig, dashboardService, argv, env);
  const found = await findRun(config);
  const stop = listenForStop(printError, 'stopping');
  return await untilStopped(stop, async () => {
    const log = warningLogger('dashboard');
    await using run = await openRun(found, { log, signal: stop.stop, report: printError });
    const { modelDir } = found;
    const open = async (opened: OpenRun): Promise<Dashboard> => {
      const { dashboardPort: port } = config;
      if (opened.kind === 'live') {
        return await openLiveDashboard({ broker: opened.broker, modelDir, port, log });
      }
      const now = () => folderRun(found.run, opened.folder);
      return await serveDashboard({ port, everyMs: folderEveryMs, now });
    };
    await using page = await open(run);
    process.stdout.write(`dashboard of ${found.run} at ${page.url}\n`);
    await aborted(stop.stop);
    return stop.exitCode() ?? 0;
  });
}
