/**
 * Remembers the result of each request, so that a resent copy (after a lost response) gets the same
 * result instead of a second execution. Evicts the oldest entries first.
 */
export class ResendMemory<T> {
  readonly #entries = new Map<string, T>();

  constructor(private readonly capacity: number) {}

  /**
   * Returns the remembered value of `key`, else calls `create`; remembers nothing if that throws.
   *
   * @param isUsable whether a remembered value is still valid; if not, it is replaced.
   */
  getOrCreate(key: string, create: () => T, isUsable: (known: T) => boolean = () => true): T {
    const known = this.#entries.get(key);
    if (known !== undefined && isUsable(known)) return known;
    const created = create();
    this.#entries.set(key, created);
    if (this.#entries.size > this.capacity) {
      const oldest = this.#entries.keys().next();
      if (oldest.done !== true) this.#entries.delete(oldest.value);
    }
    return created;
  }

  get(key: string): T | undefined {
    return this.#entries.get(key);
  }

  /** The next request of that key is executed again. */
  forget(key: string): void {
    this.#entries.delete(key);
  }
}
