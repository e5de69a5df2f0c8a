import { PermanentError, UserError } from '../base/errors.js';

/** What failed and how, of any failed exchange with a Tinker server. */
export interface Failure {
  readonly operation: string; // optim_step, create_model, …
  readonly url: string;
  readonly status?: number; // absent when no answer came, or the answer was a failed future
  readonly detail: string; // what the server said, or why no answer came
}

/** The request itself is wrong, so sending it again cannot help. */
export class BadRequest extends PermanentError {
  override readonly name = 'BadRequest';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Change the request: it stays wrong'), options);
  }
}

/** The answer is none that the Tinker API knows: the server is of another kind or version. */
export class BadAnswer extends PermanentError {
  override readonly name = 'BadAnswer';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(
      sentence(failure, 'Check that the URL is that of a Tinker server and its version'),
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
    super(
      sentence(failure, 'Check the API key, and that what is asked for belongs to it'),
      options,
    );
  }
}

/** The server does not hand out an adapter's files in a way that reaches this machine. */
export class AdapterOutOfReach extends UserError {
  override readonly name = 'AdapterOutOfReach';
}

/** The server no longer has the run, session or promise: rebuild it from the last checkpoint. */
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
 * The operation did not run, because one before it failed or the server counts otherwise. The run
 * itself finds the right sequence id for the next operation; the caller decides what of the work to
 * repeat, knowing that gradients of a part of a batch may lie on the server.
 */
export class SequenceConflict extends Error {
  override readonly name = 'SequenceConflict';

  constructor(
    readonly failure: Failure,
    /** The id that the server would take next, where it said so. */
    readonly expected?: number,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Repeat the step, or restore the last saved state'), options);
  }
}

/**
 * It may work later, but not within the retry budget of this client. Whether an operation of a training
 * run was done is unknown then, so that its caller restores a saved state instead of repeating it.
 */
export class Unavailable extends Error {
  override readonly name = 'Unavailable';

  constructor(
    readonly failure: Failure,
    options?: ErrorOptions,
  ) {
    super(sentence(failure, 'Look at the server and the network between, then try again'), options);
  }
}

/** The server answers, and an operation comes to no end. */
export class StillPending extends Unavailable {}

export type TinkerError =
  BadRequest | BadAnswer | AccessRefused | RunLost | SequenceConflict | Unavailable;

/** The error of an answer that is a failure, by what the caller can do about it. */
export function errorOfStatus(failure: Failure & { readonly status: number }): TinkerError {
  const { status, detail } = failure;
  if (status === 401 || status === 403) return new AccessRefused(failure);
  // The run is there, but not what the request names: TuFT answers 404 to both.
  if (status === 404 && /checkpoint|loss function|base model/i.test(detail)) {
    return new BadRequest(failure);
  }
  if (status === 404 || status === 410) return new RunLost(failure);
  // 408: a server that waits for missing ids says so when it gives up.
  if (status === 409 || status === 408) return new SequenceConflict(failure, expectedId(detail));
  // What went wrong inside an operation, such as memory that ran out: TuFT's 422 in place of a 500.
  const isServers = status === 422 && /^future failed: server error/i.test(detail);
  if (status === 402 || status === 429 || status >= 500 || isServers) {
    return new Unavailable(failure);
  }
  return new BadRequest(failure);
}

/** "Sequence conflict: expected 5, got 6." → 5 */
export function expectedId(detail: string): number | undefined {
  const [, id] = /expected\D{0,20}(\d+)\D{1,20}got\D{0,20}\d+/i.exec(detail) ?? [];
  return id === undefined ? undefined : Number(id);
}

function sentence({ operation, url, status, detail }: Failure, remedy: string): string {
  const what = status === undefined ? 'failed' : `was answered ${status}`;
  return `${operation} at ${url} ${what}: ${detail.replace(/\.$/, '')}. ${remedy}.`;
}
