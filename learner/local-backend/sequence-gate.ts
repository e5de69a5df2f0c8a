import { PermanentError } from '../../shared/errors.js';

/** A sequence id that cannot run: already used, or its predecessors never came. */
export class SequenceConflict extends PermanentError {
  override readonly name: string = 'SequenceConflict';

  /** The text begins as TuFT's does, so that clients read the expected id from either server. */
  constructor(
    readonly expected: number,
    readonly got: number,
    why = '',
  ) {
    super(`Sequence conflict: expected ${expected}, got ${got}.${why === '' ? '' : ` ${why}`}`);
  }
}

/** Further ahead than any client pipelines: such an id is a mistake, not a gap. */
const maxLead = 10_000;

/**
 * Runs the operations of one training run one at a time, in the order of their sequence ids 1, 2, …,
 * whatever order they arrive in. An operation consumes its id whether it succeeds or fails, because
 * the Python SDK goes on with the next id after a failure.
 */
export class SequenceGate {
  #next = 1; // the smallest id that no operation has taken
  #tail: Promise<unknown> = Promise.resolve();
  readonly #waiting = new Map<number, () => void>();
  readonly #givenUp = new Set<number>(); // consumed by waiting in vain, all above #next

  /**
   * @param gapWaitMs how long an operation waits for ids below its own.
   * @param after starts a timer and returns what stops it; replaced in tests.
   */
  constructor(
    private readonly gapWaitMs: number,
    private readonly after: (ms: number, run: () => void) => () => void = startTimer,
  ) {}

  /**
   * Resolves as `work` does.
   *
   * @param seqId without one, `work` takes its turn in order of arrival.
   * @throws {SequenceConflict} if `seqId` is taken (reported after all that came before has ended,
   *   so the expected id in it is settled), or when the ids below it did not come in time.
   */
  run<T>(seqId: number | undefined, work: () => Promise<T>): Promise<T> {
    if (seqId === undefined) return this.#enqueue(work);
    if (this.#isTaken(seqId) || seqId > this.#next + maxLead) {
      return this.#enqueue(() => Promise.reject(new SequenceConflict(this.#next, seqId)));
    }
    return new Promise<T>((resolve, reject) => {
      const stopTimer =
        seqId === this.#next
          ? () => undefined
          : this.after(this.gapWaitMs, () => {
              this.#waiting.delete(seqId);
              this.#givenUp.add(seqId);
              const waited = `It waited ${this.gapWaitMs / 1000} s.`;
              reject(new SequenceConflict(this.#next, seqId, waited));
            });
      this.#waiting.set(seqId, () => {
        stopTimer();
        resolve(this.#enqueue(work));
      });
      this.#letPass();
    });
  }

  #isTaken(seqId: number): boolean {
    return seqId < this.#next || this.#waiting.has(seqId) || this.#givenUp.has(seqId);
  }

  #letPass(): void {
    for (;;) {
      const start = this.#waiting.get(this.#next);
      if (start === undefined && !this.#givenUp.delete(this.#next)) return;
      this.#waiting.delete(this.#next);
      this.#next++;
      start?.();
    }
  }

  #enqueue<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#tail.then(work);
    this.#tail = result.catch(() => undefined);
    return result;
  }
}

function startTimer(ms: number, run: () => void): () => void {
  const timer = setTimeout(run, ms).unref(); // a gap must not keep a stopped process alive
  return () => {
    clearTimeout(timer);
  };
}
