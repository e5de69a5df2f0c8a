import { PermanentError, UserError } from '../base/errors.js';

/** Description of a failed exchange with a Tinker server. */
export interface Failure {
  readonly operation: string; // optim_step, create_model, …
  readonly url: string;
  readonly status?: number; // absent when no answer came, or the answer was a failed future
  readonly detail: string; // the server's message, or why no answer came
}

/** The request itself is wrong; retrying cannot help. */
export class BadRequest extends PermanentError {
  override readonly name = 'BadRequest';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Fix the request; retrying cannot help'), options);
  }
}

/** The answer does not match the Tinker API: the server is of another kind or version. */
export class BadAnswer extends PermanentError {
  override readonly name = 'BadAnswer';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(
      sentence(failure, 'Check that the URL belongs to a Tinker server, and its version'),
      options,
    );
  }
}

/** The API key is missing, unknown, or not the owner's. */
export class AccessRefused extends UserError {
  override readonly name = 'AccessRefused';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Check the API key, and that it owns what was requested'), options);
  }
}

/** The server offers an adapter's files at a location that this machine cannot reach. */
export class AdapterOutOfReach extends UserError {
  override readonly name = 'AdapterOutOfReach';
}

/** The server no longer has the run, session or future: rebuild it from the last checkpoint. */
export class RunLost extends Error {
  override readonly name = 'RunLost';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Restore the run from its last saved state'), options);
  }
}

/**
 * The operation did not run, because an earlier one failed or the server expects another sequence id. The run
 * itself recovers the id for the next operation; the caller decides which work to repeat. The server may hold
 * the gradients of a part of a batch.
 */
export class SequenceConflict extends Error {
  override readonly name = 'SequenceConflict';

  constructor(
    readonly failure: Failure,
    /** The id that the server expects next, if it said so. */
    readonly expected?: number,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Repeat the step, or restore the last saved state'), options);
  }
}

/**
 * The request may succeed later, but not within this client's retry budget. Whether an operation of a
 * training run was done is unknown, so the caller restores a saved state instead of repeating it.
 */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Check the server and the network, then try again'), options);
  }
}

/** The server answers that it failed at the operation, such as for lack of memory. */
export class OperationFailed extends Unavailable {}

/** The server answers polls, but the operation does not finish in time. */
export class StillPending extends Unavailable {}

export type TinkerError =
  | BadRequest
  | BadAnswer
  | AccessRefused
  | RunLost
  | SequenceConflict
  | Unavailable;

/** Maps a failed answer to an error class by what the caller can do about it. */
export function errorOfStatus(failure: Failure & { readonly status: number }): TinkerError {
  const { status, detail } = failure;
  if (status === 401 || status === 403) return new AccessRefused(failure);
  if (isLost(detail)) return new RunLost(failure);
  // The run exists, but not what the request names: TuFT answers 404 in both cases.
  if (status === 404 && /checkpoint|loss function|base model/i.test(detail)) {
    return new BadRequest(failure);
  }
  if (hasNoSuchCall(failure)) return new BadRequest(failure);
  if (status === 404 || status === 410) return new RunLost(failure);
  // 408: a server that waits for missing ids answers this when it gives up.
  if (status === 409 || status === 408) return new SequenceConflict(failure, expectedId(detail));
  // TuFT answers 422 instead of 500 for a failure inside an operation, such as out of memory.
  const isServers = status === 422 && /^future failed: server error/i.test(detail);
  if (isServers) return new OperationFailed(failure);
  if (status === 402 || status === 429 || status >= 500) return new Unavailable(failure);
  return new BadRequest(failure);
}

/** Whether the server does not have the call itself; a lost run or checkpoint is named in the answer. */
export function hasNoSuchCall({ status, detail }: Failure): boolean {
  return status === 405 || status === 501 || (status === 404 && noRoute.test(detail));
}

/**
 * Whether a refusal says that the server no longer has the run, session or future. Miles, open-rl and SkyRL answer 400
 * to that, where others answer 404.
 */
export function isLost(detail: string): boolean {
  return lost.test(detail);
}

const lost =
  /^(unknown (model|session|sampling session) |sampling session \S+ is unknown|future not found|model \S+ (was unloaded|not loaded))/i;
/** FastAPI's answer to an unknown path, and the local backend's. */
const noRoute = /^not found\.?$|is not part of this API$/i;

/** "Sequence conflict: expected 5, got 6." → 5 */
export function expectedId(detail: string): number | undefined {
  const [, id] = /expected\D{0,20}(\d+)\D{1,20}got\D{0,20}\d+/i.exec(detail) ?? [];
  return id === undefined ? undefined : Number(id);
}

function sentence({ operation, url, status, detail }: Failure, remedy: string): string {
  const what = status === undefined ? 'failed' : `was answered ${status}`;
  return `${operation} at ${url} ${what}: ${detail.replace(/\.$/, '')}. ${remedy}.`;
}
