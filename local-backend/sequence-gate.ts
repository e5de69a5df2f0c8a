import { PermanentError } from '../shared/base/errors.js';

/** A sequence id that cannot run: already used, skipped, or far ahead of the next one. */
export class SequenceConflict extends PermanentError {
  override readonly name: string = 'SequenceConflict';

  /** The message begins like TuFT's, so that clients can parse the expected id from both servers. */
  constructor(
    readonly expected: number,
    readonly got: number,
  ) {
    super(`Sequence conflict: expected ${expected}, got ${got}.`);
  }
}

interface SequenceGateOptions {
  /** How long an operation waits for lower ids. */
  readonly gapWaitMs: number;
  /** Called with the range of skipped ids, both ends included. */
  readonly onGap?: (first: number, last: number) => void;
  /** Starts a timer and returns a function that stops it; replaced in tests. */
  readonly after?: (ms: number, run: () => void) => () => void;
}

/** More than any client pipelines: an id further ahead is an error, not a gap. */
const maxLead = 10_000;

/**
 * Runs the operations of one training run one at a time, in the order of their sequence ids 1, 2, …,
 * regardless of their order of arrival. The Python SDK continues with the next id after a failure, so
 * an operation consumes its id whether it succeeds or fails. An id that never arrives, because the SDK
 * failed before sending the request, is skipped after `gapWaitMs`.
 */
export class SequenceGate {
  #next = 1; // the smallest id that is neither used nor skipped
  #tail: Promise<unknown> = Promise.resolve();
  readonly #waiting = new Map<number, () => void>();

  constructor(private readonly options: SequenceGateOptions) {}

  /**
   * Runs `work` in its turn and returns its result.
   *
   * @param seqId if undefined, `work` runs in order of arrival.
   * @throws {SequenceConflict} if `seqId` was used or skipped, or is too far ahead; thrown after all
   *   earlier operations have ended, so that the expected id in it is final.
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
              this.#skipGapsBefore(seqId);
            });
      this.#waiting.set(seqId, () => {
        stopTimer();
        resolve(this.#enqueue(work));
      });
      this.#startReady();
    });
  }

  #skipGapsBefore(seqId: number): void {
    while (this.#next <= seqId) {
      const first = this.#next;
      while (!this.#waiting.has(this.#next)) this.#next++;
      this.options.onGap?.(first, this.#next - 1);
      this.#startReady();
    }
  }

  #startReady(): void {
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
