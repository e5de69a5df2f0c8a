import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Broker } from '../../shared/broker/broker.js';
import { UserError } from '../../shared/base/errors.js';
import { metricsJournal } from '../report/journal.js';
import { CheckpointFile } from './checkpoint-file.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';

interface TracesOptions {
  readonly broker: Pick<Broker, 'run' | 'names' | 'ledger' | 'policy' | 'events' | 'ticketsSoFar'>;
  readonly runDir: string;
  readonly log: Logger;
}

/** Where a run has left data, one line per place; empty for a run that has not begun. */
export interface Traces {
  readonly inNats: readonly string[];
  readonly inFolder: readonly string[];
  /** Path of a checkpoint in the folder that belongs to another run of the same name. */
  readonly foreignFile?: string | undefined;
}

/** Checks every place where a run leaves data. */
export async function findTraces({ broker, runDir, log }: TracesOptions): Promise<Traces> {
  const { names } = broker;
  const [checkpoints, ticketIds, events, newest, versions, tickets] = await Promise.all([
    broker.ledger.history(),
    broker.ledger.ticketIds(),
    broker.events.count(),
    broker.events.newest('checkpoint'),
    broker.policy.versions(),
    broker.ticketsSoFar(),
  ]);
  const inNats = [
    checkpoints.length > 0 &&
      `${names.buckets.ledger}: a checkpoint of step ${checkpoints[0]!.step}`,
    events > 0 && `${names.streams.events}: ${events} events`,
    versions.length > 0 && `${names.buckets.policy}: policy versions up to ${versions.at(-1)}`,
    tickets > 0 && `${names.streams.tickets}: ${tickets} tickets were issued`,
  ];
  const file = new CheckpointFile(runDir, broker.run, log);
  const copy = await file.read();
  const step = copy?.step ?? 0;
  const metrics = join(runDir, metricsJournal.name);
  const lines = await linesOf(metrics);
  const inFolder = [
    step > 0 && `${file.path}: a checkpoint of step ${step}`,
    lines > 0 && `${metrics}: ${lines} steps`,
  ];
  // Every run has its own ticket key, and every checkpoint a copy of it.
  const inCheckpoints = [...checkpoints, newest?.checkpoint].map((each) => each?.ticketKey);
  const keys = [ticketIds?.key, ...inCheckpoints].filter((key) => key !== undefined);
  const ours = copy?.ticketKey;
  const isForeign =
    ours !== undefined && keys.length > 0 && !keys.some(({ secret }) => secret === ours.secret);
  return {
    inNats: inNats.filter(isText),
    inFolder: inFolder.filter(isText),
    foreignFile: isForeign ? file.path : undefined,
  };
}

/**
 * Refuses a run folder that does not belong to the run in NATS.
 *
 * @throws {UserError} if the folder has a run that NATS does not know, or another run of the same name: training
 *   would overwrite it, and its checkpoint could be mistaken for one of this run.
 */
export function assertKnownToNats(run: string, { inNats, inFolder, foreignFile }: Traces): void {
  if (inNats.length > 0 && foreignFile !== undefined) {
    throw new UserError(
      [
        `${foreignFile} is of another run that is also named ${run}: its ticket key is not the one that NATS has.`,
        'Nothing was changed. What the folder has:',
        ...inFolder.map((trace) => `  - ${trace}`),
        'What NATS has:',
        ...inNats.map((trace) => `  - ${trace}`),
        'To continue the run of the folder, give its NATS server with --nats-url. To continue the run in NATS, ' +
          'give its folder with --run-dir, or move this folder away.',
      ].join('\n'),
    );
  }
  if (inNats.length > 0 || inFolder.length === 0) return;
  throw new UserError(
    [
      `NATS holds nothing of run ${run}, which has been trained:`,
      ...inFolder.map((trace) => `  - ${trace}`),
      'If this is not the NATS server of that run, give the right --nats-url. If its files are gone, restore them; ' +
        'or start a new run: choose another --run, or move this folder away.',
    ].join('\n'),
  );
}

/** The error for a trained run that cannot be restored. @param failures why each checkpoint found cannot be used. */
export function restoreError(
  run: string,
  { inNats, inFolder }: Traces,
  failures: readonly string[],
): UserError {
  const found = failures.length === 0 ? ['no checkpoint is left'] : failures;
  return new UserError(
    [
      `run ${run} has been trained, and no checkpoint of it can be restored:`,
      ...found.map((failure) => `  - ${failure}`),
      'What is left of it:',
      ...[...inNats, ...inFolder].map((trace) => `  - ${trace}`),
      "Nothing was changed. Restore the files of NATS, or the backend's checkpoint folder, and start again; or start a new run with another --run.",
    ].join('\n'),
  );
}

async function linesOf(path: string): Promise<number> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return text.split('\n').filter((line) => line !== '').length;
}

function isText(value: string | false): value is string {
  return value !== false;
}
