import type { Logger } from '../service/telemetry/logger.js';
import type { Answer } from './answer.js';
import { UntypedFuture } from './api.js';
import { BadRequest, RunLost, SequenceConflict, type Failure } from './errors.js';
import { retrieve } from './future.js';
import { NoAnswer, waitable, type TinkerHttp, type TinkerRequest } from './http.js';
import type { ResultType } from './result-types.js';

/** An operation that the server runs in the order of its sequence id. */
export interface SequencedOperation<T> {
  readonly name: string;
  readonly type: ResultType<T>;
  request(seqId: number): Omit<TinkerRequest, 'operation'>;
  /** Adapts to a refusal. @returns true if `request` now builds another request that may be accepted. */
  adapt?(refusal: Answer): boolean;
  /**
   * Called if the operation was done but its result was lost. @returns a substitute result, or an operation
   * that gets it.
   */
  afterLoss(): { readonly value: T } | { readonly operation: SequencedOperation<T> };
  /**
   * Called if the server refuses a copy since what the operation makes exists: SkyRL compares names before ids. @returns
   * the result, once that is complete.
   */
  whenMade?(): Promise<T>;
}

/** An accepted operation, and whether an earlier copy may have reached the server. */
interface Started<T> {
  readonly result: Promise<T>;
  readonly isResent: boolean;
}

/**
 * Submits the operations of one training run in the order of the calls: each is accepted by the server before
 * the next is sent, several may run, and their results are awaited separately.
 *
 * Two failures occur, and servers differ in how they then treat sequence ids (§4.4 of the protocol reference;
 * TuFT is the strictest):
 * - *An operation fails.* Operations called before the failure was known are refused here too. (Operations
 *   already sent may run: since 0.2.1 TuFT lets the next operation pass a failed one, so an optimizer step
 *   can use half a batch. Only a restored state is sure to be complete.) The next call first asks the server
 *   for the expected id.
 * - *An answer is lost.* The operation may or may not have been accepted. It is resent under the same id, and
 *   nothing is sent after it until it has ended: the server recognizes the copy, reports that this id is
 *   done, or had never received the first.
 *
 * A server may also restart: TuFT with persistence then silently continues from its own last checkpoint, with
 * weights and moments rewound but not the sequence ids. So a refused connection of any request ends the run
 * here.
 */
export class SubmissionQueue {
  #nextId = 1;
  #highestSent = 0;
  #lastDone = 0;
  #isInDoubt = false; // whether #nextId is what the server expects
  #era = 0; // counts failures; calls of an earlier era are not sent
  #failure: unknown; // started this era
  #lost: RunLost | undefined;
  #probes = 0;
  readonly #refusals: number; // before this run was created
  #turn: Promise<unknown> = Promise.resolve();
  #settled: Promise<unknown> = Promise.resolve(); // resolves when every sent operation has ended

  constructor(
    private readonly http: TinkerHttp,
    private readonly signal: AbortSignal,
    /** An operation without effects; each that it returns differs from those before. */
    private readonly probe: (count: number) => SequencedOperation<unknown>,
    private readonly log: Logger = http.log,
  ) {
    this.#refusals = http.refusals;
  }

  /**
   * Runs `operation` after all earlier calls and returns its result.
   *
   * @throws {SequenceConflict} with the first failure as cause, if an earlier operation failed.
   * @throws {RunLost} at this and every later call, once the server has lost the run.
   */
  run<T>(operation: SequencedOperation<T>): Promise<T> {
    const era = this.#era;
    const started = this.#turn.then(() => this.#submit(operation, era));
    this.#turn = started.catch(() => undefined);
    return started.then(({ result }) => result);
  }

  async #submit<T>(operation: SequencedOperation<T>, era: number): Promise<Started<T>> {
    if (this.#lost) throw this.#lost;
    if (era !== this.#era) throw this.#skipped(operation);
    try {
      this.#assertServerStayed(operation.name);
      if (this.#isInDoubt) await this.#resync();
      const before = this.#settled;
      const { result, isResent } = await this.#start(operation, before);
      const watched = result.catch((error: unknown) => {
        this.#isInDoubt = true; // servers differ in whether a failure consumes its id
        this.#fail(error, era);
        throw error;
      });
      const ended = watched.catch(() => undefined);
      this.#settled = before.then(() => ended);
      if (isResent) await ended; // a later operation might otherwise run before it
      return { result: watched, isResent };
    } catch (error) {
      // A request that was refused immediately has not consumed its id.
      if (!(error instanceof BadRequest)) this.#isInDoubt = true;
      this.#fail(error, era);
      throw error;
    }
  }

  async #start<T>(operation: SequencedOperation<T>, before: Promise<unknown>): Promise<Started<T>> {
    const id = this.#nextId;
    const { requestId, isResent, whenMade } = await this.#post(operation, id);
    this.#nextId = id + 1;

    const finish = async (): Promise<T> => {
      if (whenMade !== undefined) return this.#made(operation.name, id, whenMade);
      if (requestId === undefined) return this.#afterLoss(operation, id, before);
      try {
        const future = { operation: operation.name, requestId, type: operation.type };
        const value = await retrieve(this.http, future, this.signal);
        this.#lastDone = Math.max(this.#lastDone, id);
        return value;
      } catch (error) {
        if (isResent && isDone(error, id)) return this.#afterLoss(operation, id, before);
        if (!(error instanceof SequenceConflict)) throw error;
        await before; // one of those caused it
        throw new SequenceConflict(error.failure, error.expected, { cause: this.#failure });
      }
    };
    return { result: finish(), isResent };
  }

  /** Sends until accepted. Without a request id, the server has done the operation already. */
  async #post<T>(
    operation: SequencedOperation<T>,
    id: number,
  ): Promise<{ requestId?: string; isResent: boolean; whenMade?: () => Promise<T> }> {
    const retryBudget = this.http.retryBudget();
    this.#highestSent = Math.max(this.#highestSent, id);
    let isResent = false;
    for (;;) {
      let answer: Answer;
      try {
        answer = await this.http.send(
          { operation: operation.name, ...operation.request(id) },
          this.signal,
        );
      } catch (caught) {
        if (!(caught instanceof NoAnswer)) throw caught;
        this.#assertServerStayed(operation.name);
        isResent ||= !caught.isUnsent;
        await retryBudget.wait(caught.failure, undefined, this.signal, caught);
        continue;
      }
      if (answer.isOk) {
        return { requestId: answer.parse(UntypedFuture).request_id, isResent };
      }
      if (operation.adapt?.(answer) === true) continue;
      if (waitable(answer)) {
        // 429 and 402 refuse immediately; after any other status the work may have started.
        isResent ||= answer.status !== 429 && answer.status !== 402;
        await retryBudget.wait(answer.failure, answer.headers, this.signal);
        continue;
      }
      const { error } = answer;
      if (isResent && isDone(error, id)) return { isResent };
      const whenMade = operation.whenMade?.bind(operation);
      if (isResent && whenMade !== undefined && exists(error)) return { isResent, whenMade };
      throw error;
    }
  }

  async #made<T>(name: string, id: number, whenMade: () => Promise<T>): Promise<T> {
    this.log.warn({ operation: name, seqId: id }, 'operation begun, its future lost');
    const value = await whenMade();
    this.#lastDone = Math.max(this.#lastDone, id);
    return value;
  }

  async #afterLoss<T>(
    operation: SequencedOperation<T>,
    id: number,
    before: Promise<unknown>,
  ): Promise<T> {
    this.log.warn({ operation: operation.name, seqId: id }, 'operation done, result lost');
    this.#lastDone = Math.max(this.#lastDone, id);
    const remedy = operation.afterLoss();
    if ('value' in remedy) return remedy.value;
    const again = await this.#start(remedy.operation, before);
    return again.result;
  }

  /** Asks the server for the expected id, after every sent operation has ended. */
  async #resync(): Promise<void> {
    await this.#settled;
    if (this.#lost) throw this.#lost;
    const expected = await this.#probe();
    this.#isInDoubt = false;
    if (expected === undefined) {
      this.log.warn({ seqId: this.#nextId }, 'expected sequence id not reported by the server');
      return;
    }
    if (expected <= this.#lastDone || expected > this.#highestSent + 1) {
      const detail =
        expected <= this.#lastDone
          ? `it expects operation ${expected} though it has done ${this.#lastDone}: its state is older`
          : `it expects operation ${expected} after ${this.#highestSent}: another client trains this run`;
      throw new RunLost({ ...this.#place('optim_step'), detail });
    }
    this.log.info({ seqId: expected }, 'sequence id recovered');
    this.#nextId = expected;
  }

  /**
   * No endpoint returns the expected id, but the refusal of an invalid id does: ids start at 1. Servers without a check
   * of ids (SkyRL, open-rl) run the probe, which therefore has no effect: an optimizer step, even at a learning rate of 0,
   * would change the moments, and open-rl keeps the other settings of a run's first one. Each probe differs, since a
   * server that recognizes copies would repeat its last answer.
   */
  async #probe(): Promise<number | undefined> {
    const operation = 'sequence probe';
    const probe = this.probe(this.#probes++);
    const request = { operation, ...probe.request(0) };
    try {
      const answer = await this.http.call(request, this.signal);
      const { request_id: requestId } = answer.parse(UntypedFuture);
      await retrieve(this.http, { operation, requestId, type: probe.type }, this.signal);
      return undefined;
    } catch (error) {
      if (error instanceof SequenceConflict) return error.expected;
      if (error instanceof BadRequest) return undefined;
      throw error;
    }
  }

  #assertServerStayed(operation: string): void {
    if (this.http.refusals === this.#refusals) return;
    const detail = 'its server ended since the run began: a connection was refused';
    throw new RunLost({ ...this.#place(operation), detail });
  }

  #fail(error: unknown, era: number): void {
    if (error instanceof RunLost) this.#lost = error;
    // A refused request never ran, so its id is still free.
    if (!(error instanceof BadRequest && error.failure.status !== undefined))
      this.#isInDoubt = true;
    if (era !== this.#era) return; // a consequence of the failure that ended that era
    this.#era++;
    this.#failure = error;
  }

  #skipped(operation: SequencedOperation<unknown>): SequenceConflict {
    const detail = 'not sent, because an operation called before it failed';
    return new SequenceConflict({ ...this.#place(operation.name), detail }, undefined, {
      cause: this.#failure,
    });
  }

  #place(operation: string): Omit<Failure, 'detail'> {
    return { operation, url: this.http.baseUrl };
  }
}

/** Whether the server refuses an operation because what it makes is there. */
function exists(error: unknown): boolean {
  if (!(error instanceof SequenceConflict)) return false;
  const { status, detail } = error.failure;
  return status === 409 && /already exists/i.test(detail);
}

/** Whether the server refuses the copy of an operation because the operation is done. */
function isDone(error: unknown, id: number): boolean {
  return error instanceof SequenceConflict && error.expected !== undefined && error.expected > id;
}
