import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { errorText, PermanentError } from '../shared/base/errors.js';
import { ApiError, badRequest } from './http-api.js';

/** How an operation ended. The category says whether the request (`user`) or this process (`server`) is at fault. */
export type Outcome<T> =
  | { readonly isOk: true; readonly value: T }
  | { readonly isOk: false; readonly error: string; readonly category: 'user' | 'server' };

interface FutureLimits<T> {
  /** How long a result is kept after its first fetch, in case that response was lost. */
  readonly keepFetchedMs: number;
  /** How long a result is kept for its first fetch. */
  readonly keepUnfetchedMs: number;
  /** The most bytes that the results of all owners take together; beyond it the oldest are dropped. */
  readonly ownedBytes: number;
  readonly bytesOf: (result: T) => number;
}

const sweepEveryMs = 1_000;
const bytesOfEntry = 1_024; // of a future besides its result, generously

interface Future<T> {
  readonly settled: Promise<Outcome<T>>;
  readonly owner: string | undefined;
  readonly resendKey: string | undefined;
  readonly canCancel: boolean;
  cancel: (() => void) | undefined; // only while the operation runs, since it holds the request
  outcome?: Outcome<T>;
  settledAs: number; // its place among all settled futures, from 1; Infinity while the operation runs
  expiresAt: number; // ms since the epoch; Infinity while the operation runs
  bytes: number; // as counted towards the limit; 0 while the operation runs and without an owner
}

/** The settled futures of one owner, in the order in which they settled. */
export interface SettledFutures {
  readonly futures: readonly { readonly id: string; readonly isOk: boolean }[];
  readonly cursor: number; // the place of the last one
}

/**
 * The futures of the API: a POST returns a request id at once, and polling that id returns the result.
 * A result can be fetched again for a while, since any response may be lost.
 */
export class FutureStore<T> {
  /** Part of each id, to recognize a request of an earlier process as lost. */
  readonly #instance = randomBytes(6).toString('hex');
  readonly #futures = new Map<string, Future<T>>();
  readonly #owned = new Map<string, Set<string>>(); // ids by owner
  readonly #byResendKey = new Map<string, string>(); // ids
  readonly #kept = new Set<string>(); // ids of settled futures that have an owner, the oldest first
  #keptBytes = 0;
  readonly #watchers = new Map<string, Set<() => void>>(); // by owner
  #created = 0;
  #settled = 0;
  #sweepAt = 0; // ms since the epoch

  readonly #limits: FutureLimits<T>;

  constructor(
    limits: Partial<FutureLimits<T>> = {},
    private readonly now: () => number = Date.now,
  ) {
    this.#limits = {
      keepFetchedMs: 5 * 60_000,
      keepUnfetchedMs: 2 * 3_600_000,
      ownedBytes: 2 ** 28,
      bytesOf: () => 0,
      ...limits,
    };
  }

  /**
   * Registers a running operation and returns its request id. The id is unguessable, since the sampling
   * key can fetch results too.
   *
   * @param owner whose futures {@link settledOf} returns together.
   * @param cancel makes the operation fail soon; absent: it cannot be cancelled.
   * @param resendKey equal for a request and a copy of it that is sent again; see {@link idOf}.
   */
  add(
    operation: Promise<T>,
    {
      owner,
      cancel,
      resendKey,
    }: { owner?: string; cancel?: () => void; resendKey?: string | undefined } = {},
  ): string {
    this.#sweep();
    const id = `${this.#instance}-${this.#created++}-${randomBytes(8).toString('hex')}`;
    const settled = operation.then<Outcome<T>, Outcome<T>>(
      (value) => ({ isOk: true, value }),
      (error: unknown) => ({ isOk: false, error: errorText(error), category: categoryOf(error) }),
    );
    const future: Future<T> = {
      settled,
      owner,
      resendKey,
      canCancel: cancel !== undefined,
      cancel,
      settledAs: Infinity,
      expiresAt: Infinity,
      bytes: 0,
    };
    this.#futures.set(id, future);
    if (owner !== undefined) addTo(this.#owned, owner, id);
    if (resendKey !== undefined) this.#byResendKey.set(resendKey, id);
    void settled.then((outcome) => {
      future.outcome = outcome;
      future.cancel = undefined;
      future.settledAs = ++this.#settled;
      future.expiresAt = this.now() + this.#limits.keepUnfetchedMs;
      if (owner === undefined) return;
      this.#keep(id, future, outcome);
      for (const wake of this.#watchers.get(owner) ?? []) wake();
    });
    return id;
  }

  /** Whether the operation is running or its result is still kept. */
  has(id: string): boolean {
    return this.#find(id) !== undefined;
  }

  /** Returns the future of a request that was sent before and is running or whose result is still kept. */
  idOf(resendKey: string): string | undefined {
    const id = this.#byResendKey.get(resendKey);
    return id !== undefined && this.has(id) ? id : undefined;
  }

  /**
   * Returns the outcome, or undefined if the operation is still running after `waitMs` or when `signal` aborts.
   *
   * @throws {ApiError} 410 when the result is no longer kept; 404 for an id that was never issued.
   */
  async wait(id: string, waitMs: number, signal: AbortSignal): Promise<Outcome<T> | undefined> {
    const future = this.#find(id);
    if (future === undefined) throw this.#explainAbsence(id);
    const outcome = future.outcome ?? (await within(future.settled, waitMs, signal));
    if (outcome !== undefined) {
      future.expiresAt = Math.min(future.expiresAt, this.now() + this.#limits.keepFetchedMs);
    }
    return outcome;
  }

  /**
   * Returns the owner's futures that settled after the one at `cursor` and are still kept. While there is none, it
   * waits up to `waitMs`, or until `signal` aborts.
   */
  async settledOf(
    owner: string,
    cursor: number,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<SettledFutures> {
    const now = this.#settledAfter(owner, cursor);
    if (now.futures.length > 0) return now;
    let wake = (): void => undefined;
    const settled = new Promise<void>((resolve) => (wake = resolve));
    addTo(this.#watchers, owner, wake);
    try {
      await within(settled, waitMs, signal);
    } finally {
      removeFrom(this.#watchers, owner, wake);
    }
    return this.#settledAfter(owner, cursor);
  }

  /**
   * Cancels an operation. One that has ended stays as it is.
   *
   * @throws {ApiError} 400 for an operation that cannot be cancelled; 404 for an id that was never issued.
   */
  cancel(id: string): void {
    const future = this.#find(id);
    if (future === undefined) {
      const absence = this.#explainAbsence(id);
      if (absence.status === 404) throw absence;
    } else if (!future.canCancel) {
      throw badRequest(`request_id ${id} is no sample: only samples can be cancelled`);
    } else future.cancel?.();
  }

  /** Drops the results of an owner that has them; ids of others are ignored. */
  drop(owner: string, ids: readonly string[]): void {
    for (const id of ids) {
      const future = this.#futures.get(id);
      if (future?.owner === owner && future.outcome !== undefined) this.#remove(id, future);
    }
  }

  #settledAfter(owner: string, cursor: number): SettledFutures {
    const settled = [...(this.#owned.get(owner) ?? [])].flatMap((id) => {
      const future = this.#find(id);
      return future?.outcome !== undefined && future.settledAs > cursor ? [{ id, future }] : [];
    });
    settled.sort((a, b) => a.future.settledAs - b.future.settledAs);
    return {
      futures: settled.map(({ id, future }) => ({ id, isOk: future.outcome!.isOk })),
      cursor: settled.at(-1)?.future.settledAs ?? cursor,
    };
  }

  #explainAbsence(id: string): ApiError {
    const [, instance, number] = /^([0-9a-f]{12})-([0-9]+)-[0-9a-f]{16}$/.exec(id) ?? [];
    if (instance === undefined || (instance === this.#instance && Number(number) >= this.#created))
      return new ApiError(404, `request_id ${JSON.stringify(id)} was never issued`);
    const why =
      instance === this.#instance
        ? 'its result is no longer kept'
        : 'the backend has restarted since';
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
    for (const [id, future] of this.#futures) {
      if (future.expiresAt <= now) this.#remove(id, future);
    }
  }

  /** Counts a result, and drops the oldest ones beyond the limit, or a client that never fetches could fill the memory. */
  #keep(id: string, future: Future<T>, outcome: Outcome<T>): void {
    future.bytes =
      bytesOfEntry +
      (outcome.isOk ? this.#limits.bytesOf(outcome.value) : 2 * outcome.error.length);
    this.#kept.add(id);
    this.#keptBytes += future.bytes;
    for (const oldest of this.#kept) {
      if (this.#keptBytes <= this.#limits.ownedBytes || oldest === id) return;
      this.#remove(oldest, this.#futures.get(oldest)!);
    }
  }

  #remove(id: string, { owner, resendKey, bytes }: Future<T>): void {
    this.#futures.delete(id);
    if (resendKey !== undefined && this.#byResendKey.get(resendKey) === id) {
      this.#byResendKey.delete(resendKey);
    }
    this.#kept.delete(id);
    this.#keptBytes -= bytes;
    if (owner !== undefined) removeFrom(this.#owned, owner, id);
  }
}

/** Returns what `promise` becomes, or undefined if it is pending after `waitMs` or when `signal` aborts. */
async function within<T>(
  promise: Promise<T>,
  waitMs: number,
  signal: AbortSignal,
): Promise<T | undefined> {
  const timeout = new AbortController();
  const timer = sleep(waitMs, undefined, {
    signal: AbortSignal.any([signal, timeout.signal]),
  }).catch(() => undefined);
  try {
    return await Promise.race([promise, timer]);
  } finally {
    timeout.abort();
  }
}

function addTo<Key, Value>(sets: Map<Key, Set<Value>>, key: Key, value: Value): void {
  const set = sets.get(key);
  if (set === undefined) sets.set(key, new Set([value]));
  else set.add(value);
}

function removeFrom<Key, Value>(sets: Map<Key, Set<Value>>, key: Key, value: Value): void {
  const set = sets.get(key);
  set?.delete(value);
  if (set?.size === 0) sets.delete(key);
}

/** Returns whether the caller or this process is at fault. */
function categoryOf(error: unknown): 'user' | 'server' {
  return error instanceof PermanentError || error instanceof ApiError ? 'user' : 'server';
}
