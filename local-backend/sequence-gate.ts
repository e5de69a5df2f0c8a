import { PermanentError } from '../shared/base/errors.js';

/** A sequence id that cannot run: already used, passed over, or far ahead of its predecessors. */
export class SequenceConflict extends PermanentError {
  override readonly name: string = 'SequenceConflict';

  /** The text begins as TuFT's does, so that clients read the expected id from either server. */
  constructor(
    readonly expected: number,
    readonly got: number,
  ) {
    super(`Sequence conflict: expected ${expected}, got ${got}.`);
  }
}

export interface SequenceGateOptions {
  /** How long an operation waits for ids below its own. */
  readonly gapWaitMs: number;
  /** Told which ids, in vain waited for, are passed over; both bounds belong to them. */
  readonly onGap?: (first: number, last: number) => void;
  /** Starts a timer and returns what stops it; replaced in tests. */
  readonly after?: (ms: number, run: () => void) => () => void;
}

/** Further ahead than any client pipelines: such an id is a mistake, not a gap. */
const maxLead = 10_000;

/**
 * Runs the operations of one training run one at a time, in the order of their sequence ids 1, 2, …,
 * whatever order they arrive in. The Python SDK goes on with the next id after a failure, so an
 * operation consumes its id whether it succeeds or fails. An id that never comes, because the SDK
 * failed before it sent the request, is passed over after a while.
 */
export class SequenceGate {
  #next = 1; // the smallest id that is neither taken nor passed over
  #tail: Promise<unknown> = Promise.resolve();
  readonly #waiting = new Map<number, () => void>();

  constructor(private readonly options: SequenceGateOptions) {}

  /**
   * Resolves as `work` does.
   *
   * @param seqId without one, `work` takes its turn in order of arrival.
   * @throws {SequenceConflict} if `seqId` was taken or passed over (reported after all that came
   *   before has ended, so the expected id in it is settled), or is too far ahead.
   */
  run<T>(seqId: number | undefined, work: () => Promise<T>): Promise<T> {
    if (seqId === undefined) return this.#enqueue(work);
    if (seqId < this.#next || this.#waiting.has(seqId) || seqId > this.#next + maxLead) {
      return this.#enqueue(() => Promise.reject(new SequenceConflict(this.#next, seqId)));
    }
    return new Promise<T>((resolve) => {
      const { gapWaitMs, after = startTimer } = this.options;
      const stopTimer =
        seqId === this.#next
          ? () => undefined
          : after(gapWaitMs, () => {
              this.#passOverGapsBefore(seqId);
            });
      this.#waiting.set(seqId, () => {
        stopTimer();
        resolve(this.#enqueue(work));
      });
      this.#letPass();
    });
  }

  #passOverGapsBefore(seqId: number): void {
    while (this.#next <= seqId) {
      const first = this.#next;
      while (!this.#waiting.has(this.#next)) this.#next++;
      this.options.onGap?.(first, this.#next - 1);
      this.#letPass();
    }
  }

  #letPass(): void {
    for (;;) {
      const start = this.#waiting.get(this.#next);
      if (start === undefined) return;
      this.#waiting.delete(this.#next);
      this.#next++;
      start();
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
