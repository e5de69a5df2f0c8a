/** Adds up the seconds in which something is idle, by cause. */
export class IdleTime<Cause extends string> {
  readonly #seconds: Record<Cause, number>;
  #cause: Cause | undefined;
  #since: number;

  /**
   * @param seconds where it adds up, from their initial values.
   * @param now in seconds, of a clock that only rises.
   * @param onIdle called with each idle time that has been added.
   */
  constructor(
    seconds: Readonly<Record<Cause, number>>,
    private readonly now: () => number,
    private readonly onIdle: (cause: Cause, seconds: number) => void,
  ) {
    this.#seconds = { ...seconds };
    this.#since = now();
  }

  /** From now on it is idle for this cause; undefined: it is busy, or nothing is expected of it. */
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

  /** Seconds so far. */
  get seconds(): Readonly<Record<Cause, number>> {
    this.settle();
    return { ...this.#seconds };
  }
}
