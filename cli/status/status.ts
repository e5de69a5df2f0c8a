import { statfs } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Broker } from '../../shared/broker/broker.js';
import { number } from '../../shared/service/config-fields.js';
import { loadConfig, type Environment } from '../../shared/service/config.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { actorRenewalMs } from '../../shared/wire/actor-lease.js';
import { printableJson } from '../../shared/base/printable.js';
import { findRun, runningStore, whichRun } from '../existing-run/find-run.js';
import { readStore } from '../existing-run/read-store.js';
import { isLive } from '../existing-run/actor-report.js';
import { ActorLeaseClock, hasLearner, LeaseClock, usualRenewalMs } from '../existing-run/leases.js';
import { readRunState } from '../existing-run/run-state.js';
import { ensureNatsServer } from '../nats-server/ensure.js';
import { shortCommand } from '../processes/stop-signals.js';
import { reportOf, type StatusReport } from './report.js';
import { statusReportText } from './text.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

/** The run to report, and how often. */
export const StatusConfig = z
  .object({
    ...whichRun,
    watch: z
      .boolean()
      .default(false)
      .describe(
        'repeats the report until the run has ended, also by Ctrl-C. If its learner was killed, it waits until the run is resumed.',
      ),
    everySeconds: number
      .min(0.1)
      .max(3_600)
      .optional()
      .describe('with --watch: seconds between reports; default 2.'),
    json: z.boolean().default(false).describe('prints JSON; with --watch one line per report.'),
  })
  .check(({ value, issues }) => {
    if (value.watch || value.everySeconds === undefined) return;
    const message = 'without --watch there is one report; add it, or remove this';
    issues.push({ code: 'custom', input: value, path: ['everySeconds'], message });
  });
export type StatusConfig = z.infer<typeof StatusConfig>;

const service = 'offbeat-status';

export function statusHelp(): string {
  return `offbeat status: what a run is doing now, here or on another machine.

Shows the step, the version, staleness, what waits in each queue, the actors with their versions, who
waits for whom, the last evaluation and the dead letters. It only reads: the key observer.nk is enough.

${describeFlags(StatusConfig.shape, service)}
`;
}

/**
 * @returns the exit code: 0, or the signal's code after Ctrl-C.
 * @throws {UserError} for an unknown run, or a server that does not answer.
 */
export async function status(argv: readonly string[], env: Environment): Promise<number> {
  const config = loadConfig(StatusConfig, service, argv, env);
  const found = await findRun(config);
  if (found.folder !== undefined && (await isFull(found.folder.path))) {
    printError(
      `the disk is full: nothing can be written to ${found.folder.path}; make room, and the run continues`,
    );
  }
  return shortCommand('status', undefined, async ({ stop, folder, log }) => {
    const { stop: signal, hurry } = stop;
    const store = {
      found,
      natsBinary: () => ensureNatsServer({ env, report: printError, signal }),
      command: 'status',
      deadlineMs: 60_000,
      logFolder: folder,
      signal,
      hurry,
      log,
    };
    const pause = () => sleep(1_000 * (config.everySeconds ?? 2), undefined, { signal });
    const leases = new LeaseClock();
    const actorLeases = new ActorLeaseClock();
    const look = async (broker: Broker, isStopped: boolean) => {
      for (let isFirst = true; ; isFirst = false) {
        const read = await readRunState(broker, signal);
        const actors = actorLeases.seen(read.actors, read.at);
        const state = { ...read, leader: leases.seen(read.leader, read.at), actors };
        if (isFirst && !isStopped && state.leader !== undefined) {
          // A lease that looks old may be that of a machine whose clock is behind ours.
          const isSilent = !hasLearner(state.leader, state.at);
          const areSilent = actors.length > 0 && !actors.some((lease) => isLive(lease, state.at));
          const patience = isSilent ? usualRenewalMs(state.leader) : 2 * actorRenewalMs;
          if (isSilent || areSilent) {
            await sleep(patience, undefined, { signal });
            continue;
          }
        }
        const report = reportOf(state, isStopped);
        show(report, config, process.stdout);
        const isOver = !config.watch || report.phase === 'ended';
        // The user's own server stays; the run's ends with the run.
        if (isOver || found.natsUrl === undefined) return { isOver, isStopped };
        await pause();
      }
    };
    for (;;) {
      const { isOver, isStopped } = await readStore(store, look);
      if (isOver) return 0;
      // Until then nothing changes, and its folder is free for the resume.
      if (isStopped) printError(`run ${found.run} is stopped; waiting until it is resumed`);
      do await pause();
      while (isStopped && (await runningStore(found)) === undefined);
    }
  });
}

/** Whether the disk of a folder is full. It is not written to, so a quota is not noticed. */
async function isFull(folder: string): Promise<boolean> {
  const { bavail, bsize } = await statfs(folder);
  return bavail * bsize < 64 * 1024;
}

/** On a terminal a report replaces the previous one; lines that are too long are cut. */
function show(
  report: StatusReport,
  { json, watch }: StatusConfig,
  stream: NodeJS.WriteStream,
): void {
  if (json) {
    stream.write(`${printableJson(report)}\n`);
    return;
  }
  const text = statusReportText(report);
  if (!watch) stream.write(text);
  else if (!stream.isTTY || process.env['TERM'] === 'dumb') stream.write(`${report.at}\n${text}\n`);
  else {
    const fitting = text.split('\n').map((line) => line.slice(0, stream.columns || 80));
    stream.write(`\x1b[H\x1b[2J${fitting.join('\n')}`);
  }
}
