import { addAbortListener, setMaxListeners } from 'node:events';

/**
 * A signal that aborts with any of several others, or by itself, and lets go of them when disposed.
 * `AbortSignal.any` would hold on to a long-lived signal for every call made under it.
 */
export class LinkedAbort implements Disposable {
  readonly #controller = new AbortController();
  readonly #links: Disposable[] = [];

  constructor(...signals: readonly (AbortSignal | undefined)[]) {
    setMaxListeners(0, this.signal); // every request in flight listens: many are no leak
    for (const signal of signals) {
      if (signal === undefined) continue;
      if (signal.aborted) this.abort(signal.reason);
      setMaxListeners(0, signal);
      const link = addAbortListener(signal, () => {
        this.abort(signal.reason);
      });
      this.#links.push(link);
    }
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason?: unknown): void {
    this.#controller.abort(reason);
  }

  [Symbol.dispose](): void {
    for (const link of this.#links.splice(0)) link[Symbol.dispose]();
  }
}
