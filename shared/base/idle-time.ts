/** Accumulates idle seconds by cause. */
export class IdleTime<Cause extends string> {
  readonly #seconds: Record<Cause, number>;
  #cause: Cause | undefined;
  #since: number;

  /**
   * @param seconds initial values.
   * @param now monotonic clock, in seconds.
   * @param onIdle called with each added idle time.
   */
  constructor(
    seconds: Readonly<Record<Cause, number>>,
    private readonly now: () => number,
    private readonly onIdle: (cause: Cause, seconds: number) => void,
  ) {
    this.#seconds = { ...seconds };
    this.#since = now();
  }

  /** Sets the current cause of idleness; undefined: busy, or no work is expected. */
  idleFor(cause: Cause | undefined): void {
    this.settle();
    this.#cause = cause;
  }

  /** Adds the time up to now. */
  settle(): void {
    const now = this.now();
    if (this.#cause !== undefined) {
      this.#seconds[this.#cause] += now - this.#since;
      this.onIdle(this.#cause, now - this.#since);
    }
    this.#since = now;
  }

  /** Idle seconds so far, by cause. */
  get seconds(): Readonly<Record<Cause, number>> {
    this.settle();
    return { ...this.#seconds };
  }
}
