import { ErrorCode, NatsError } from 'nats';

/**
 * The meaning of a NATS error to the caller.
 *
 * - `full`: the stream has reached its limit; acknowledgements free space.
 * - `away`: the server does not answer, or JetStream is still starting; try again.
 * - `absent`: the stream, consumer, key or object does not exist.
 * - `conflict`: another process wrote first.
 * - `closed`: this connection is closed for good.
 * - `other`: retrying cannot help.
 */
export type Failure = 'full' | 'away' | 'absent' | 'conflict' | 'closed' | 'other';

/** Whether the server's permissions forbid the request. */
export function isNotAllowed(caught: unknown): boolean {
  return caught instanceof NatsError && caught.code === (ErrorCode.PermissionsViolation as string);
}

/** Whether a message to be deleted is not in the stream. */
export function isNotThere(caught: unknown): boolean {
  if (!(caught instanceof NatsError)) return false;
  const code = caught.api_error?.err_code;
  return code === 10057 || code === 10043; // the deletion failed, or removed nothing
}

/** Classifies an error. "Full" and "no such stream" are both status 503; only `err_code` distinguishes them. */
export function classify(caught: unknown): Failure {
  if (!(caught instanceof NatsError)) return 'other';
  const errCode = caught.api_error?.err_code;
  if (errCode !== undefined) {
    if (fullCodes.has(errCode)) return 'full';
    if (absentCodes.has(errCode)) return 'absent';
    if (conflictCodes.has(errCode)) return 'conflict';
    return caught.api_error?.code === 503 ? 'away' : 'other';
  }
  if (awayCodes.has(caught.code)) return 'away';
  if (closedCodes.has(caught.code)) return 'closed';
  return caught.code === (ErrorCode.JetStream404NoMessages as string) ? 'absent' : 'other';
}

/** Whether the server answers that it has no JetStream: nothing listens on its API, or the API says so. */
export function isWithoutJetStream(caught: unknown): boolean {
  if (!(caught instanceof NatsError)) return false;
  const { api_error: error, code } = caught;
  if (error !== undefined) return error.err_code === 10039 || error.err_code === 10076;
  return code === (ErrorCode.NoResponders as string);
}

/**
 * Whether the server, the account or the stream is out of bytes. Our streams have no byte limits, so an
 * operator must act, while a stream that is full of messages is ordinary backpressure.
 */
export function isOutOfStorage(caught: unknown): boolean {
  const { err_code: errCode, description = '' } =
    (caught instanceof NatsError ? caught.api_error : undefined) ?? {};
  if (errCode === undefined) return false;
  return (
    outOfStorageCodes.has(errCode) ||
    (errCode === 10077 && description.includes('maximum bytes')) ||
    isOfServersDisk(caught)
  );
}

/** Whether the server reports that its disk is full, as it does before it stops answering. */
export function isOfServersDisk(caught: unknown): boolean {
  const description = caught instanceof NatsError ? caught.api_error?.description : undefined;
  return /no space left|quota exceeded|read-only file system/.test(description ?? '');
}

const outOfStorageCodes = new Set([
  10002, // resource limits exceeded for account
  10023, // insufficient resources
  10028, // insufficient memory resources
  10047, // insufficient storage resources
]);

const fullCodes = new Set([
  ...outOfStorageCodes,
  10077, // maximum messages (or bytes) exceeded
]);

const absentCodes = new Set([
  10014, // consumer not found
  10037, // no message found
  10059, // stream not found
]);

const conflictCodes = new Set([
  10071, // wrong last sequence
  10164, // wrong last sequence, without the number (nats-server 2.11 and later)
]);

const awayCodes = new Set<string>([
  ErrorCode.Timeout,
  ErrorCode.NoResponders, // no stream takes the subject, or JetStream is not up yet
  ErrorCode.Disconnect,
  ErrorCode.ConnectionRefused,
  ErrorCode.ConnectionTimeout,
  ErrorCode.JetStream408RequestTimeout,
]);

const closedCodes = new Set<string>([ErrorCode.ConnectionClosed, ErrorCode.ConnectionDraining]);
