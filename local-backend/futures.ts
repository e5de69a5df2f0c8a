import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorText, PermanentError } from '../shared/base/errors.js';
import { ApiError } from './http-api.js';

/** How an operation ended. The category tells the caller whether the request itself was wrong. */
export type Outcome<T> =
  | { readonly isOk: true; readonly value: T }
  | { readonly isOk: false; readonly error: string; readonly category: 'user' | 'server' };

export interface FutureLimits {
  /** How long a result stays after it was first handed out, in case that answer got lost. */
  readonly keepFetchedMs: number;
  /** How long a result waits for its first poll. */
  readonly keepUnfetchedMs: number;
}

const sweepEveryMs = 1_000;

interface Future<T> {
  readonly settled: Promise<Outcome<T>>;
  outcome?: Outcome<T>;
  expiresAt: number; // ms since the epoch; Infinity while the operation runs
}

/**
 * The promises of the API: a POST answers with a request id at once, and polling that id brings the
 * result. A result can be fetched again for a while, since any answer may be lost on its way.
 */
export class FutureStore<T> {
  /** Part of each id, so that a request of an earlier process is known to be lost. */
  readonly #instance = randomBytes(6).toString('hex');
  readonly #futures = new Map<string, Future<T>>();
  #created = 0;
  #sweepAt = 0; // ms since the epoch

  constructor(
    private readonly limits: FutureLimits = {
      keepFetchedMs: 5 * 60_000,
      keepUnfetchedMs: 2 * 3_600_000,
    },
    private readonly now: () => number = Date.now,
  ) {}

  /**
   * Registers an operation that runs already, and returns its request id. It cannot be guessed: those who
   * may only sample can ask for results, too.
   */
  add(operation: Promise<T>): string {
    this.#sweep();
    const id = `${this.#instance}-${this.#created++}-${randomBytes(8).toString('hex')}`;
    const settled = operation.then<Outcome<T>, Outcome<T>>(
      (value) => ({ isOk: true, value }),
      (error: unknown) => ({ isOk: false, error: errorText(error), category: blame(error) }),
    );
    const future: Future<T> = { settled, expiresAt: Infinity };
    this.#futures.set(id, future);
    void settled.then((outcome) => {
      future.outcome = outcome;
      future.expiresAt = this.now() + this.limits.keepUnfetchedMs;
    });
    return id;
  }

  /** Whether the operation still runs or its result is still kept. */
  has(id: string): boolean {
    return this.#find(id) !== undefined;
  }

  /**
   * The outcome, or undefined if the operation still runs after `waitMs` or once `signal` aborts.
   *
   * @throws {ApiError} 410 when the result existed and is gone; 404 for an id never given out.
   */
  async wait(id: string, waitMs: number, signal: AbortSignal): Promise<Outcome<T> | undefined> {
    const future = this.#find(id);
    if (future === undefined) throw this.#explainAbsence(id);
    const outcome = future.outcome ?? (await this.#settledWithin(future, waitMs, signal));
    if (outcome !== undefined) {
      future.expiresAt = Math.min(future.expiresAt, this.now() + this.limits.keepFetchedMs);
    }
    return outcome;
  }

  async #settledWithin(
    future: Future<T>,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<Outcome<T> | undefined> {
    const patience = new AbortController();
    const timer = sleep(waitMs, undefined, {
      signal: AbortSignal.any([signal, patience.signal]),
    }).catch(() => undefined);
    try {
      return await Promise.race([future.settled, timer]);
    } finally {
      patience.abort();
    }
  }

  #explainAbsence(id: string): ApiError {
    const [, instance, number] = /^([0-9a-f]{12})-([0-9]+)-[0-9a-f]{16}$/.exec(id) ?? [];
    if (instance === undefined || (instance === this.#instance && Number(number) >= this.#created))
      return new ApiError(404, `request_id ${JSON.stringify(id)} was never given out`);
    const why =
      instance === this.#instance
        ? 'its result was kept for a while and then dropped'
        : 'the backend was restarted since';
    return new ApiError(410, `request_id ${id} is gone: ${why}; send the operation again`);
  }

  #find(id: string): Future<T> | undefined {
    const future = this.#futures.get(id);
    return future !== undefined && future.expiresAt > this.now() ? future : undefined;
  }

  #sweep(): void {
    const now = this.now();
    if (now < this.#sweepAt) return;
    this.#sweepAt = now + sweepEveryMs;
    for (const [id, { expiresAt }] of this.#futures) {
      if (expiresAt <= now) this.#futures.delete(id);
    }
  }
}

/** Whether the caller or this process is at fault. */
function blame(error: unknown): 'user' | 'server' {
  return error instanceof PermanentError || error instanceof ApiError ? 'user' : 'server';
}

/**
 * Remembers what each request led to, so that a copy of it (after a lost response) leads to the same
 * and not to a second execution. The oldest entries are forgotten first.
 */
export class ResendMemory<T> {
  readonly #entries = new Map<string, T>();

  constructor(private readonly capacity: number) {}

  /**
   * What `key` led to before, else what `make` returns now; nothing is remembered if it throws.
   *
   * @param isUsable whether what it led to before can still be used; otherwise it is made anew.
   */
  once(key: string, make: () => T, isUsable: (known: T) => boolean = () => true): T {
    const known = this.#entries.get(key);
    if (known !== undefined && isUsable(known)) return known;
    const made = make();
    this.#entries.set(key, made);
    if (this.#entries.size > this.capacity) {
      const oldest = this.#entries.keys().next();
      if (oldest.done !== true) this.#entries.delete(oldest.value);
    }
    return made;
  }
}
