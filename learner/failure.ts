import { handled } from './handled.js';

/** The first failure of work that goes on in the background, and the alarm that it raises. */
export class Failure {
  readonly #alarm = new AbortController();

  /** Aborts with the error as its reason. */
  get signal(): AbortSignal {
    return this.#alarm.signal;
  }

  /** Raises the alarm when `signal` aborts, with its reason. */
  follow(signal: AbortSignal): void {
    const raise = (): void => {
      this.#alarm.abort(signal.reason);
    };
    if (signal.aborted) raise();
    else signal.addEventListener('abort', raise, { once: true });
  }

  /** The same promise; should it reject, the alarm is raised. */
  watch<T>(work: Promise<T>): Promise<T> {
    work.catch((error: unknown) => {
      this.#alarm.abort(error);
    });
    return handled(work);
  }
}
