import { addAbortListener } from 'node:events';

/**
 * The background work of a session: the first failure of any part raises an alarm that ends the others.
 * Disposing of it ends them as well and waits until all have settled, so that nothing of the session is
 * written after that.
 */
export class Failure implements AsyncDisposable {
  readonly #alarm = new AbortController();
  readonly #underWay = new Set<Promise<void>>();
  #following: Disposable | undefined;

  /** Aborts with the error as its reason. */
  get signal(): AbortSignal {
    return this.#alarm.signal;
  }

  /** Raises the alarm when `signal` aborts, with its reason. */
  follow(signal: AbortSignal): void {
    this.#following = addAbortListener(signal, () => {
      this.#alarm.abort(signal.reason);
    });
  }

  /** The same promise, which may be awaited late; should it reject, the alarm is raised. */
  watch<T>(work: Promise<T>): Promise<T> {
    const settled = work
      .then(
        () => undefined,
        (error: unknown) => {
          this.#alarm.abort(error);
        },
      )
      .finally(() => this.#underWay.delete(settled));
    this.#underWay.add(settled);
    return work;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#following?.[Symbol.dispose]();
    this.#alarm.abort(new Error('the session has ended'));
    while (this.#underWay.size > 0) await Promise.all(this.#underWay); // they may start more
  }
}
