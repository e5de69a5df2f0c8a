import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Broker } from '../../shared/broker/broker.js';
import { UserError } from '../../shared/errors.js';
import { metricsJournal } from '../report/journal.js';
import { CheckpointFile } from './checkpoint-file.js';
import type { Logger } from '../../shared/telemetry/logger.js';

export interface TracesOptions {
  readonly broker: Pick<Broker, 'run' | 'names' | 'ledger' | 'policy' | 'events' | 'ticketsSoFar'>;
  readonly runDir: string;
  readonly log: Logger;
}

/** What there is of a run, a line for each place; empty where a run has not begun. */
export interface Traces {
  readonly inNats: readonly string[];
  readonly inFolder: readonly string[];
}

/** Looks for a run in every place where one that has begun leaves something. */
export async function findTraces({ broker, runDir, log }: TracesOptions): Promise<Traces> {
  const { names } = broker;
  const [checkpoints, events, versions, tickets] = await Promise.all([
    broker.ledger.history(),
    broker.events.count(),
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
  const step = (await file.read())?.step ?? 0;
  const metrics = join(runDir, metricsJournal.name);
  const lines = await linesOf(metrics);
  const inFolder = [
    step > 0 && `${file.path}: a checkpoint of step ${step}`,
    lines > 0 && `${metrics}: ${lines} steps`,
  ];
  return { inNats: inNats.filter(isText), inFolder: inFolder.filter(isText) };
}

/** @throws {UserError} if the folder has a run that NATS does not know: to begin it there would overwrite it. */
export function assertKnownToNats(run: string, { inNats, inFolder }: Traces): void {
  if (inNats.length > 0 || inFolder.length === 0) return;
  throw new UserError(
    [
      `NATS holds nothing of run ${run}, which has been trained:`,
      ...inFolder.map((trace) => `  - ${trace}`),
      'If this is not the NATS server of that run, give the right --nats-url. If its files are gone, put them back; ' +
        'or begin a new run: with another --run, or after this folder has been moved away.',
    ].join('\n'),
  );
}

/** @param failures the checkpoints that were found, and why each cannot be used. */
export function nothingToRestore(
  run: string,
  { inNats, inFolder }: Traces,
  failures: readonly string[],
): UserError {
  const found = failures.length === 0 ? ['no checkpoint is left'] : failures;
  return new UserError(
    [
      `run ${run} has been trained, and no checkpoint of it can be restored:`,
      ...found.map((failure) => `  - ${failure}`),
      'What there is of it:',
      ...[...inNats, ...inFolder].map((trace) => `  - ${trace}`),
      "Nothing was changed. Put back the files of NATS, or the backend's checkpoint folder, and start again; or begin a new run with another --run.",
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
