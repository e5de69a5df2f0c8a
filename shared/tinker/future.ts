import { errorText } from '../base/errors.js';
import type { Answer } from './answer.js';
import { CompleteMetadata, FailedFuture, RetrieveFutureRequest, TryAgain } from './sampling-api.js';
import { protobufType } from './codec.js';
import {
  BadRequest,
  expectedId,
  isLost,
  RunLost,
  SequenceConflict,
  StillPending,
  OperationFailed,
  type TinkerError,
} from './errors.js';
import { NoAnswer, waitable, type TinkerHttp, type TinkerRequest } from './http.js';
import type { ResultType } from './result-types.js';

/** A pending result of `operation`, identified by `requestId`. */
export interface Future<T> {
  readonly operation: string;
  readonly requestId: string;
  readonly type: ResultType<T>;
}

/**
 * Polls until the result is available. A server holds a poll while the operation runs (TuFT up to 120 s, SkyRL
 * up to 300 s), so a pending answer is followed by the next poll almost at once, as is a poll that is still held
 * at our time limit, and a failure by one after a wait.
 *
 * Source: §2.6 of the protocol reference, row by row.
 *
 * @throws {BadRequest} if the operation failed because of the request.
 * @throws {SequenceConflict} if it did not run because of its sequence id.
 * @throws {RunLost} if the server no longer knows the future, or has ended meanwhile: TuFT may then keep it
 *   pending indefinitely.
 * @throws {StillPending} if the operation takes longer than `deadlineMs`.
 * @throws {Unavailable} if no poll was answered for too long, or the operation failed on the server.
 */
export function retrieve<T>(
  http: TinkerHttp,
  future: Future<T>,
  signal: AbortSignal,
  deadlineMs = defaultDeadlineMs,
): Promise<T> {
  const deadline = http.now() + deadlineMs;
  const question: Question<T> = {
    request: (iteration) => poll(future, iteration),
    read: (answer) => read(answer, future),
    onPending: (url) => {
      if (http.now() > deadline) throw overdue(future.operation, url, deadlineMs);
    },
  };
  return pollUntil(http, question, signal);
}

/** What a poll asks, and how its answers are read. */
export interface Question<T> {
  readonly request: (iteration: number) => TinkerRequest;
  readonly read: (answer: Answer) => Reading<T>;
  /** Called with the URL of a poll after which there is nothing yet; an error ends the polling. */
  readonly onPending: (url: string) => void;
}

export type Reading<T> =
  | { readonly value: T }
  | { readonly isPending: true }
  | { readonly error: TinkerError; readonly isTransient: boolean };

/** Polls until an answer has a value. @throws what {@link retrieve} throws of the exchange itself. */
export async function pollUntil<T>(
  http: TinkerHttp,
  { request, read, onPending }: Question<T>,
  signal: AbortSignal,
): Promise<T> {
  const retryBudget = http.retryBudget();
  const waitLonger = async (url: string) => {
    retryBudget.renew();
    onPending(url);
    await http.sleep(minPauseMs, signal);
  };
  let badRequests = 0;
  for (let iteration = 0; ; iteration++) {
    let answer: Answer;
    try {
      answer = await http.send(request(iteration), signal);
    } catch (caught) {
      if (!(caught instanceof NoAnswer)) throw caught;
      if (caught.isRefused) throw new RunLost(caught.failure, { cause: caught });
      // The server holds the poll, if it answers other questions.
      const isHeld = caught.isTimeout && (await isAlive(http, signal));
      if (isHeld) await waitLonger(caught.failure.url);
      else await retryBudget.wait(caught.failure, undefined, signal, caught);
      continue;
    }
    const reading = read(answer);
    if ('value' in reading) return reading.value;
    if ('isPending' in reading) {
      await waitLonger(answer.url);
    } else if (reading.isTransient || (answer.status === 400 && badRequests++ < 3)) {
      await retryBudget.wait(answer.failure, answer.headers, signal);
    } else {
      throw reading.error;
    }
  }
}

/** Whether the server answers at all, with whatever. */
async function isAlive(http: TinkerHttp, signal: AbortSignal): Promise<boolean> {
  const question = { operation: 'healthz', path: '/api/v1/healthz', method: 'GET' } as const;
  try {
    await http.send({ ...question, timeoutMs: aliveMs }, signal);
    return true;
  } catch (caught) {
    if (caught instanceof NoAnswer) return false;
    throw caught;
  }
}

const aliveMs = 10_000;

/**
 * Above the 120 s that TuFT holds a poll, so that its "try again" arrives before our timeout. Below the limits of SkyRL
 * and of fetch itself: a poll is then given up and the next one sent.
 */
export const pollTimeoutMs = 150_000;
const minPauseMs = 50; // for servers that do not hold polls
export const defaultDeadlineMs = 2 * 3_600_000; // for one pending operation

function poll(future: Future<unknown>, iteration: number): TinkerRequest {
  const json = RetrieveFutureRequest.parse({ request_id: future.requestId });
  const accept = future.type.protobuf ? `${protobufType}, application/json` : 'application/json';
  return {
    operation: future.operation,
    path: '/api/v1/retrieve_future',
    body: { json },
    timeoutMs: pollTimeoutMs,
    headers: {
      accept,
      'x-tinker-request-iteration': String(iteration),
      'x-tinker-request-type': future.type.name,
    },
  };
}

function read<T>(answer: Answer, { type }: Future<T>): Reading<T> {
  const json = answer.isProtobuf ? undefined : answer.json();
  const isPending = TryAgain.safeParse(json).success || CompleteMetadata.safeParse(json).success;
  if (isPending && answer.isOk) return { isPending };

  if (!answer.isOk) {
    const { error } = answer;
    // TuFT returns an operation's own 408, 409 and 5xx as the poll's status; with this text they are final.
    const isFinal = /^failed to retrieve future/i.test(answer.failure.detail);
    // Any other is of the poll: SkyRL ends one by it after 300 s.
    if (answer.status === 408 && !isFinal) return { isPending: true };
    const isOperations = isFinal && answer.status !== 429;
    return { error, isTransient: waitable(answer) && !isOperations };
  }
  const failed = FailedFuture.safeParse(json);
  if (failed.success) {
    return { error: errorOfFuture(answer, failed.data), isTransient: false };
  }
  if (!answer.isProtobuf) return { value: answer.parse(type.json) };
  if (!type.protobuf) throw answer.unexpected('expected JSON');
  try {
    return { value: type.protobuf(answer.bytes) };
  } catch (caught) {
    throw answer.unexpected(errorText(caught));
  }
}

function errorOfFuture(
  { url, failure: { operation } }: Answer,
  { error: detail, category }: { error: string; category: string },
): TinkerError {
  const failure = { operation, url, detail };
  const expected = expectedId(detail);
  if (expected !== undefined) return new SequenceConflict(failure, expected);
  if (isLost(detail)) return new RunLost(failure);
  return category === 'user' ? new BadRequest(failure) : new OperationFailed(failure);
}

export function overdue(operation: string, url: string, deadlineMs: number): StillPending {
  const detail = `still pending after ${Math.round(deadlineMs / 1_000)} s`;
  return new StillPending({ operation, url, detail });
}
