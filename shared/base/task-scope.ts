import { addAbortListener, once, setMaxListeners } from 'node:events';

/**
 * Concurrent tasks that end together. The first failure of a task aborts `signal`, with its error as the
 * reason. Disposing of the scope aborts it as well and waits until all tasks have settled.
 *
 * A task that rejects because `signal` has aborted has not failed.
 */
export class TaskScope implements AsyncDisposable {
  readonly #controller = new AbortController();
  readonly #running = new Set<Promise<void>>();
  readonly #links: Disposable[] = [];
  #parent: TaskScope | undefined;
  #failure: { readonly error: unknown } | undefined; // the first

  /**
   * @param signals abort the scope, with their reasons. The scope releases them when it is disposed of, where
   *   `AbortSignal.any` would keep an entry on a long-lived signal for every call made under it.
   */
  constructor(...signals: readonly (AbortSignal | undefined)[]) {
    setMaxListeners(0, this.signal); // one listener per request in flight is not a leak
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

  /**
   * Runs the tasks in a new scope until all have settled.
   *
   * @throws the error of the first task that failed, even if it failed after `signal` aborted.
   */
  static async run(
    signal: AbortSignal,
    tasks: readonly ((signal: AbortSignal) => Promise<void>)[],
  ): Promise<void> {
    await using scope = new TaskScope(signal);
    for (const task of tasks) scope.start(task);
    await scope.settled();
    if (scope.#failure !== undefined) throw scope.#failure.error;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason?: unknown): void {
    this.#controller.abort(reason);
  }

  /** A scope that ends with this one, or earlier; a failure of its tasks is a failure of this scope too. */
  child(...signals: readonly AbortSignal[]): TaskScope {
    const child = new TaskScope(this.signal, ...signals);
    child.#parent = this;
    return child;
  }

  start(task: (signal: AbortSignal) => Promise<void>): void {
    void this.track((async () => task(this.signal))());
  }

  /** Makes `work` a task of the scope. Returns the same promise, which may be awaited late. */
  track<T>(work: Promise<T>): Promise<T> {
    const settled = work
      .then(
        () => undefined,
        (error: unknown) => {
          this.#fail(error);
        },
      )
      .finally(() => this.#running.delete(settled));
    this.#running.add(settled);
    return work;
  }

  /** Resolves when all tasks have settled. */
  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running); // they may start more
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const link of this.#links.splice(0)) link[Symbol.dispose]();
    this.abort(new DOMException('the task scope has ended', 'AbortError'));
    await this.settled();
  }

  #fail(error: unknown): void {
    if (isAbort(error, this.signal)) return;
    this.#failure ??= { error };
    this.abort(error);
    if (this.#parent !== undefined) this.#parent.#fail(error);
  }
}

/** Whether an error says only that `signal` has aborted. */
export function isAbort(error: unknown, signal: AbortSignal): boolean {
  const isNodes = error instanceof Error && error.name === 'AbortError';
  return signal.aborted && (error === signal.reason || isNodes);
}

/** Resolves once `signal` has aborted. */
export async function aborted(signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
}

/** The result of `work`, which goes on if `signal` aborts before; then this rejects with the signal's reason. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let link: Disposable | undefined;
  const ending = new Promise<never>((_resolve, reject) => {
    link = addAbortListener(signal, () => {
      reject(signal.reason as Error);
    });
  });
  try {
    return await Promise.race([work, ending]);
  } finally {
    link?.[Symbol.dispose]();
  }
}

/** The same promise, marked as handled: its rejection may be awaited late, or through a promise derived from it. */
export function markHandled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => undefined);
  return promise;
}
