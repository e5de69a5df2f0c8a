import { setTimeout as sleep } from 'node:timers/promises';
import { Counter } from 'prom-client';
import type { Leadership } from '../../shared/broker/leadership.js';
import { errorText, UserError } from '../../shared/errors.js';
import type { Logger } from '../../shared/telemetry/logger.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import {
  BadAnswer,
  BadRequest,
  RunLost,
  SequenceConflict,
  Unavailable,
} from '../../shared/tinker/errors.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import { StepDamaged } from '../step/damage.js';

const recoveries = new Counter({
  name: 'rl_learner_recoveries_total',
  help: 'Times that the run was restored from its checkpoint: the backend failed, or lies damaged a step.',
  labelNames: ['reason'],
});

export interface RecoveryOptions {
  readonly backendUrl: string;
  readonly apiKey: string;
  readonly checkpointDir?: string | undefined;
  /** How long the backend may be away at the start; later it is given longer. */
  readonly startPatienceSeconds: number;
  readonly log: Logger;
  /** Ends the waiting between two attempts. */
  readonly stop: AbortSignal;
  /** Ends the connection to the backend. */
  readonly signal: AbortSignal;
  /** A leader that was replaced may fail in any way, as its successor deletes what nothing names. */
  readonly leadership: Pick<Leadership, 'signal' | 'confirm'>;
  /** The newest checkpoint: attempts that get further than the last one are not counted as failed. */
  readonly progress: () => Promise<Checkpoint | undefined>;
}

const confirmMs = 5_000;

/** Attempts without a new checkpoint between them before the run is given up. */
const maxAttempts = 5;

/**
 * Runs `session` with a connection to the backend, and again with a new one when the backend lost the
 * run, the order of its operations or its patience, or when lies of an actor damaged a step: the session
 * then starts from the checkpoint.
 *
 * @throws {UserError} for what no repetition mends.
 * @throws {Error} whatever failed, if another learner leads: this one may wait for its turn again.
 */
export async function withRecovery<Result>(
  options: RecoveryOptions,
  session: (client: TinkerClient) => Promise<Result>,
): Promise<Result> {
  const { backendUrl: baseUrl, apiKey, checkpointDir, startPatienceSeconds } = options;
  const { log, stop, signal, leadership, progress } = options;
  let lastStep = -1;
  for (let failures = 0; ;) {
    try {
      await using client = await TinkerClient.connect({
        baseUrl,
        apiKey,
        log,
        signal,
        ...(checkpointDir === undefined ? {} : { checkpointDir }),
        // At the start a wrong address is likelier than a long absence; later it is not.
        connectPatienceMs: 1_000 * (failures === 0 ? startPatienceSeconds : 600),
      });
      return await session(client);
    } catch (caught) {
      const error = rootOf(caught);
      // A server that is away cannot say who leads, and is no reason to wait.
      const confirmed = leadership.confirm().catch(() => undefined);
      await Promise.race([confirmed, sleep(confirmMs, undefined, { ref: false })]);
      leadership.signal.throwIfAborted();
      if (error instanceof BadRequest || error instanceof BadAnswer) {
        throw new UserError(`the backend refused what training asked of it: ${error.message}`, {
          cause: caught,
        });
      }
      if (stop.aborted || !isMendable(error)) throw error;

      const step = (await progress())?.step ?? 0;
      if (error instanceof StepDamaged) {
        // No attempt is counted: each time one actor less is believed.
        recoveries.inc({ reason: error.name });
        log.error({ reason: error.message, step }, 'restoring the run from its last checkpoint');
        continue;
      }
      failures = step > lastStep ? 1 : failures + 1;
      lastStep = step;
      if (failures > maxAttempts) {
        throw new UserError(
          `the backend failed ${failures} times since step ${step}, at last so: ${errorText(error)}`,
          { cause: caught },
        );
      }
      recoveries.inc({ reason: (error as Error).name });
      log.warn({ reason: errorText(error), step }, 'restoring the run from its last checkpoint');
      await sleep(Math.min(500 * 2 ** failures, 30_000), undefined, { signal: stop });
    }
  }
}

/** What began it: operations behind a failed one complain of a conflict, and name the cause. */
function rootOf(error: unknown): unknown {
  return error instanceof SequenceConflict && error.cause instanceof Error
    ? rootOf(error.cause)
    : error;
}

function isMendable(error: unknown): boolean {
  return (
    error instanceof RunLost ||
    error instanceof SequenceConflict ||
    error instanceof Unavailable ||
    error instanceof StepDamaged
  );
}
