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
