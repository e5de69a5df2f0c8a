import type { Broker } from '../../shared/broker/broker.js';
import { errorText } from '../../shared/base/errors.js';
import { RunConfigStore } from '../../shared/run/run-config-store.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { RunFolder } from '../run-folder.js';
import { findDecodeIn, writeSamples } from './run/sampled-group.js';
import { LiveRun } from './run/live-run.js';
import { serveDashboard, type Dashboard } from './server.js';

const everyMs = 1_000;

export interface LiveDashboardOptions {
  readonly broker: Broker; // read-only
  readonly modelDir: string | undefined; // by default the one in this repository
  readonly port: number;
  readonly log: Logger;
  /** Where the newest rollouts are kept when the run is over; by default nowhere. */
  readonly keepIn?: RunFolder;
}

/**
 * The page of a run in progress. Disposing of it marks the run as over on the page.
 *
 * @throws {UserError} if the port cannot be used.
 */
export async function openLiveDashboard(options: LiveDashboardOptions): Promise<Dashboard> {
  const { broker, modelDir, port, log, keepIn } = options;
  const configs = new RunConfigStore(broker);
  const run = new LiveRun({ broker, configs, findDecode: await findDecodeIn(modelDir), log });
  const ending = new AbortController();
  const following = run.follow(ending.signal).catch((caught: unknown) => {
    if (!ending.signal.aborted) log.warn({ reason: errorText(caught) }, 'the events have ended');
  });
  const dashboard = await serveDashboard({ port, everyMs, now: () => run.now() }).catch(
    async (caught: unknown) => {
      ending.abort();
      await following;
      throw caught;
    },
  );
  return {
    url: dashboard.url,
    async [Symbol.asyncDispose]() {
      run.end();
      await dashboard[Symbol.asyncDispose]();
      ending.abort();
      await following;
      if (keepIn === undefined || run.samples.length === 0) return;
      await writeSamples(keepIn, run.samples).catch((caught: unknown) => {
        log.warn({ reason: errorText(caught) }, 'the newest rollouts are not kept');
      });
    },
  };
}
