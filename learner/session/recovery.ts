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
import { StepDamaged } from '../audit/damage.js';

const recoveries = new Counter({
  name: 'rl_learner_recoveries_total',
  help: 'Times that the run was restored from its checkpoint: backend failures and steps damaged by false logprobs.',
  labelNames: ['reason'],
});

export interface RecoveryOptions {
  readonly backendUrl: string;
  readonly apiKey: string;
  readonly checkpointDir?: string | undefined;
  /** Seconds to wait for the backend at the start; later attempts wait at least as long. */
  readonly startPatienceSeconds: number;
  readonly log: Logger;
  /** Ends the pause between two attempts, and soon the wait for the backend. */
  readonly stop: AbortSignal;
  /** Ends the connection to the backend. */
  readonly signal: AbortSignal;
  /** Checked after each failure: a replaced leader may fail in any way, as its successor deletes orphaned checkpoints. */
  readonly leadership: Pick<Leadership, 'signal' | 'confirm'>;
  /** The newest checkpoint; an attempt that made progress resets the count of failures. */
  readonly progress: () => Promise<Checkpoint | undefined>;
  /** Waits before the next attempt, unless `signal` aborts; replaced in tests. */
  readonly pause?: ((ms: number, signal: AbortSignal) => Promise<void>) | undefined;
}

/** One session with one connection to the backend; `scope` watches its background tasks. */
export type SessionBody<Result> = (client: TinkerClient, scope: TaskScope) => Promise<Result>;

const confirmMs = 5_000;

/** How long a stopped learner still waits for its backend: a run that is not open has nothing to save. */
const stoppedPatienceMs = 5_000;

/** Failures that another session, begun from the checkpoint, may not meet. */
const recoverable = { RunLost, SequenceConflict, Unavailable, StepDamaged };

/** Failed attempts without a new checkpoint before the run is given up. */
const maxAttempts = 5;

/**
 * How long a session waits for the backend, in seconds. At the start a wrong address is likelier than a long outage; later
 * it is not. Never shorter than at the start, since a backend that is restarted loads its model again.
 *
 * @param attempts failed sessions since the last new checkpoint.
 */
export function patienceOf(attempts: number, startPatienceSeconds: number): number {
  return attempts === 0 ? startPatienceSeconds : Math.max(startPatienceSeconds, 600);
}

/**
 * Runs `session` with a connection to the backend. Starts another session from the checkpoint, with a new
 * connection, if the backend lost the run, lost the order of operations or was unavailable too long, or if
 * false logprobs of an actor damaged a step. All tasks of the failed session have settled by then.
 *
 * @throws {UserError} if retrying cannot help.
 * @throws {Error} the reason of `leadership.signal` if it has aborted, usually because another learner leads; else the
 *   failure itself, if another session cannot help or `stop` has aborted.
 */
export async function withRecovery<Result>(
  options: RecoveryOptions,
  session: SessionBody<Result>,
): Promise<Result> {
  const { startPatienceSeconds, log, stop, leadership, progress, pause = abortableSleep } = options;
  // Without a first sample of 0, Prometheus sees no increase in the first recovery of each kind.
  for (const reason of Object.keys(recoverable)) recoveries.inc({ reason }, 0);
  let lastStep = -1;
  let failures = 0;
  for (let attempts = 0; ;) {
    try {
      const patienceSeconds = patienceOf(attempts, startPatienceSeconds);
      return await runOnce(options, 1_000 * patienceSeconds, session);
    } catch (caught) {
      const error = rootCause(caught);
      // Bounded, because an unavailable server cannot say who leads.
      const confirmed = leadership.confirm().catch(() => undefined);
      await Promise.race([confirmed, sleep(confirmMs, undefined, { ref: false })]);
      leadership.signal.throwIfAborted();
      if (error instanceof BadRequest || error instanceof BadAnswer) {
        throw new UserError(`the backend refused a training request: ${error.message}`, {
          cause: caught,
        });
      }
      if (stop.aborted || !isRecoverable(error)) throw error;

      const step = (await progress())?.step ?? 0;
      if (step > lastStep) attempts = failures = 0;
      lastStep = step;
      attempts += 1;
      const isStepDamaged = error instanceof StepDamaged;
      if (!isStepDamaged) failures += 1; // a damaged step quarantines an actor, so it cannot recur forever
      if (failures > maxAttempts) {
        throw new UserError(
          `the backend failed ${failures} times since step ${step}; the last error: ${errorText(error)}`,
          { cause: caught },
        );
      }
      recoveries.inc({ reason: (error as Error).name });
      const level = isStepDamaged ? 'error' : 'warn';
      log[level]({ reason: errorText(error), step }, 'restoring the run from its last checkpoint');
      await pause(Math.min(500 * 2 ** attempts, 30_000), stop);
    }
  }
}

/**
 * Runs the session. Its first failure, and its end, close the connection to the backend, so that no task waits
 * for a backend that hangs; then all tasks of the session settle. A task that waits for NATS or for disk space
 * keeps waiting until the learner stops, as the next session would.
 *
 * @throws the first failure, since the failures that follow from it say less.
 */
async function runOnce<Result>(
  options: RecoveryOptions,
  connectPatienceMs: number,
  session: SessionBody<Result>,
): Promise<Result> {
  const { log, leadership } = options;
  await using scope = new TaskScope(leadership.signal);
  await using client = await connect(options, connectPatienceMs);
  using _closing = addAbortListener(scope.signal, () => void client[Symbol.asyncDispose]());
  try {
    return await session(client, scope);
  } catch (caught) {
    const first: unknown = scope.signal.aborted ? scope.signal.reason : caught;
    log.warn({ reason: errorText(first) }, 'session failed, waiting for its tasks to settle');
    throw first;
  }
}

/** @throws the reason of `stop` if that aborts and the backend does not answer soon after. */
async function connect(
  { backendUrl: baseUrl, apiKey, checkpointDir, log, signal, stop, ...rest }: RecoveryOptions,
  connectPatienceMs: number,
): Promise<TinkerClient> {
  const { pause = abortableSleep } = rest;
  const [ended, givenUp] = [new AbortController(), new AbortController()];
  const giveUpSoon = async () => {
    await pause(stoppedPatienceMs, ended.signal);
    givenUp.abort(stop.reason);
  };
  using _stopping = addAbortListener(stop, () => void giveUpSoon().catch(() => undefined));
  try {
    return await TinkerClient.connect({
      baseUrl,
      apiKey,
      log,
      signal: AbortSignal.any([signal, givenUp.signal]),
      connectPatienceMs,
      ...(checkpointDir === undefined ? {} : { checkpointDir }),
    });
  } finally {
    ended.abort();
  }
}

async function abortableSleep(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal });
}

/** The original error: operations queued after a failed one fail with a sequence conflict that names it as `cause`. */
function rootCause(error: unknown): unknown {
  return error instanceof SequenceConflict && error.cause instanceof Error
    ? rootCause(error.cause)
    : error;
}

function isRecoverable(error: unknown): boolean {
  return Object.values(recoverable).some((kind) => error instanceof kind);
}
