import { addAbortListener } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Counter } from 'prom-client';
import type { Leadership } from '../../shared/broker/leadership.js';
import { errorText, UserError } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { TinkerClient } from '../../shared/tinker/client.js';
import {
  BadAnswer,
  BadRequest,
  RunLost,
  SequenceConflict,
  Unavailable,
} from '../../shared/tinker/errors.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import { TaskScope } from '../../shared/base/task-scope.js';
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
  /** Waits before the next attempt, unless `signal` aborts; replaced in tests. */
  readonly pause?: ((ms: number, signal: AbortSignal) => Promise<void>) | undefined;
}

/** One session with one connection to the backend; `scope` watches all that it starts in the background. */
export type Session<Result> = (client: TinkerClient, scope: TaskScope) => Promise<Result>;

const confirmMs = 5_000;

/** Attempts without a new checkpoint between them before the run is given up. */
const maxAttempts = 5;

/**
 * Runs `session` with a connection to the backend, and again with a new one when the backend lost the
 * run, the order of its operations or its patience, or when lies of an actor damaged a step: the session
 * then starts from the checkpoint, once all that the one before had started has settled.
 *
 * @throws {UserError} for what no repetition mends.
 * @throws {Error} whatever failed, if another learner leads: this one may wait for its turn again.
 */
export async function withRecovery<Result>(
  options: RecoveryOptions,
  session: Session<Result>,
): Promise<Result> {
  const { startPatienceSeconds, log, stop, leadership, progress, pause = sleepUnless } = options;
  let lastStep = -1;
  let failures = 0;
  for (let attempts = 0; ;) {
    try {
      // At the start a wrong address is likelier than a long absence; later it is not.
      const patienceSeconds = attempts === 0 ? startPatienceSeconds : 600;
      return await runOnce(options, 1_000 * patienceSeconds, session);
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
      if (step > lastStep) attempts = failures = 0;
      lastStep = step;
      attempts += 1;
      const isDamage = error instanceof StepDamaged;
      if (!isDamage) failures += 1; // after a damage one actor less is believed
      if (failures > maxAttempts) {
        throw new UserError(
          `the backend failed ${failures} times since step ${step}, at last so: ${errorText(error)}`,
          { cause: caught },
        );
      }
      recoveries.inc({ reason: (error as Error).name });
      const level = isDamage ? 'error' : 'warn';
      log[level]({ reason: errorText(error), step }, 'restoring the run from its last checkpoint');
      await pause(Math.min(500 * 2 ** attempts, 30_000), stop);
    }
  }
}

/**
 * Runs the session. Its first failure, and its end, close the connection to the backend, so that nothing waits
 * for a backend that hangs; then all that the session has started settles. What waits for NATS or for room on a
 * disk goes on waiting, as the next session would, until the learner is to stop.
 *
 * @throws what failed first; what fails as a consequence says less.
 */
async function runOnce<Result>(
  { backendUrl: baseUrl, apiKey, checkpointDir, log, signal, leadership }: RecoveryOptions,
  connectPatienceMs: number,
  session: Session<Result>,
): Promise<Result> {
  await using scope = new TaskScope(leadership.signal);
  await using client = await TinkerClient.connect({
    baseUrl,
    apiKey,
    log,
    signal,
    connectPatienceMs,
    ...(checkpointDir === undefined ? {} : { checkpointDir }),
  });
  using _closing = addAbortListener(scope.signal, () => void client[Symbol.asyncDispose]());
  try {
    return await session(client, scope);
  } catch (caught) {
    const first: unknown = scope.signal.aborted ? scope.signal.reason : caught;
    log.warn({ reason: errorText(first) }, 'the session failed, waiting for what it has started');
    throw first;
  }
}

async function sleepUnless(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal });
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
