/** Measures the training time of this process, which `--max-minutes` limits; evaluations do not count. */
export class TrainingClock {
  readonly limitSeconds: number;
  readonly #now: () => number;
  #before = 0;
  #startedAt: number | undefined;

  /** @param now seconds of a clock that only rises. */
  constructor(limitMinutes: number, now: () => number) {
    this.limitSeconds = limitMinutes * 60;
    this.#now = now;
  }

  get seconds(): number {
    return this.#before + (this.#startedAt === undefined ? 0 : this.#now() - this.#startedAt);
  }

  get isOver(): boolean {
    return this.seconds >= this.limitSeconds;
  }

  /** Runs until disposed of; `signal` aborts when the time is up. */
  start(): { readonly signal: AbortSignal } & Disposable {
    this.#startedAt = this.#now();
    const over = new AbortController();
    const timer = setInterval(() => {
      if (this.isOver) over.abort();
    }, 50);
    if (this.isOver) over.abort();
    return {
      signal: over.signal,
      [Symbol.dispose]: () => {
        clearInterval(timer);
        this.#before = this.seconds;
        this.#startedAt = undefined;
      },
    };
  }
}

/**
 * A signal that aborts `stopPatienceSeconds` after `stop` does, for the broker and the backend, which the last
 * checkpoint still needs.
 */
export function graceAfter(
  stop: AbortSignal,
  { stopPatienceSeconds }: { readonly stopPatienceSeconds: number },
): { readonly signal: AbortSignal } & Disposable {
  const over = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const begin = (): void => {
    timer = setTimeout(() => {
      over.abort(
        new Error(
          `the last checkpoint took more than the ${stopPatienceSeconds} s of --stop-patience-seconds; ` +
            'started again, the run goes on from the one before',
        ),
      );
    }, 1_000 * stopPatienceSeconds);
  };
  if (stop.aborted) begin();
  else stop.addEventListener('abort', begin, { once: true });
  return {
    signal: over.signal,
    [Symbol.dispose]: () => {
      stop.removeEventListener('abort', begin);
      clearTimeout(timer);
    },
  };
}
