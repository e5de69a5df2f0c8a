/** Decides when to retry failed operations: after a pause that doubles with each failure. */
export class Backoff<Key> {
  readonly #failures = new Map<Key, { readonly count: number; readonly dueAt: number }>();
  readonly #now: () => number;

  /** @param now in ms, of a clock that only rises. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  failed(key: Key): void {
    const count = (this.#failures.get(key)?.count ?? 0) + 1;
    const pauseMs = Math.min(firstPauseMs * 2 ** (count - 1), longestPauseMs);
    this.#failures.set(key, { count, dueAt: this.#now() + pauseMs });
  }

  done(key: Key): void {
    this.#failures.delete(key);
  }

  /** The keys whose pause is not over. */
  waiting(): Key[] {
    const now = this.#now();
    return [...this.#failures].flatMap(([key, { dueAt }]) => (dueAt > now ? [key] : []));
  }
}

const firstPauseMs = 5_000;
const longestPauseMs = 600_000;
