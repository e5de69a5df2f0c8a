/**
 * Wakes waiters when some state changes. A waiter checks the state and then waits for the next change; no
 * change is missed in between, since neither step yields.
 */
export class Changes {
  #waiting = new Set<() => void>();

  notify(): void {
    const waiting = this.#waiting;
    this.#waiting = new Set();
    for (const wake of waiting) wake();
  }

  /** Resolves at the next change, or at once when `signal` has aborted. */
  next(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal.aborted) {
        resolve();
        return;
      }
      const wake = (): void => {
        signal.removeEventListener('abort', wake);
        this.#waiting.delete(wake);
        resolve();
      };
      signal.addEventListener('abort', wake);
      this.#waiting.add(wake);
    });
  }
}
