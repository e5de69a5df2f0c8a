import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { fileLogger } from './file-logger.js';
import { listenForStop, type StopSignals } from './stop-signals.js';
import { printError } from '../../shared/service/telemetry/print-error.js';

/** What a command has that a person waits for. */
export interface ShortCommand {
  readonly stop: StopSignals;
  readonly folder: string; // of its own, gone when it has ended
  readonly log: Logger; // in that folder
}

/**
 * Runs a command that can be broken off at any wait.
 *
 * @param farewell what is told at the first wish to stop; nothing: it is over at once.
 * @returns the command's exit code, or the signal's if that broke it off.
 * @throws what the command throws.
 */
export async function shortCommand(
  name: string,
  farewell: string | undefined,
  work: (command: ShortCommand) => Promise<number>,
): Promise<number> {
  const report = (line: string) => {
    if (farewell !== undefined) printError(line);
  };
  const stop = listenForStop(report, farewell ?? '');
  const folder = await mkdtemp(join(tmpdir(), `offbeat-${name}-`));
  try {
    return await work({ stop, folder, log: fileLogger(name, join(folder, 'log')) });
  } catch (caught) {
    const exitCode = stop.exitCode();
    if (exitCode !== undefined) return exitCode; // it is a wait that we broke off
    throw caught;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
