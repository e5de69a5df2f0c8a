import { droppedLines } from './log-stream.js';

/** How many equal lines are logged in full, and how many more a second after that. */
export interface RepetitionLimit {
  readonly inFull: number;
  readonly perSecond: number;
}

interface Bucket {
  tokens: number;
  filledAt: number; // ms
  leftOut: number; // since the last summary
  repeat: ((leftOut: number) => void) | undefined; // logs the newest line that was left out
}

const summaryEveryMs = 10_000;
const maxKeys = 1_000;

/**
 * Lets the first lines of a kind through, then few, and every 10 seconds the newest of those that were left
 * out, with their number: whoever can make a service fail fast cannot fill its disk with the log of that.
 */
export class Repetitions {
  readonly #buckets = new Map<string, Bucket>();
  #summaries: NodeJS.Timeout | undefined;

  /**
   * Logs a line now, or leaves it out and counts it.
   *
   * @param kind lines of one kind count together.
   * @param emit logs the line; `leftOut` is how many were left out since the last summary, itself included.
   */
  log(kind: string, limit: RepetitionLimit, emit: (leftOut?: number) => void): void {
    const bucket = this.#bucket(kind, limit);
    if (bucket.tokens >= 1) {
      bucket.tokens--;
      emit();
      return;
    }
    bucket.leftOut++;
    bucket.repeat = emit;
    droppedLines.inc({ reason: 'repeated' });
    this.#summaries ??= setInterval(() => {
      this.summarize();
    }, summaryEveryMs).unref();
  }

  /** Logs a summary of each kind that had lines left out. */
  summarize(): void {
    clearInterval(this.#summaries);
    this.#summaries = undefined;
    for (const bucket of this.#buckets.values()) {
      const { leftOut, repeat } = bucket;
      bucket.leftOut = 0;
      bucket.repeat = undefined;
      if (leftOut > 0) repeat?.(leftOut);
    }
  }

  #bucket(kind: string, { inFull, perSecond }: RepetitionLimit): Bucket {
    const now = Date.now();
    const found = this.#buckets.get(kind);
    if (found !== undefined) {
      const passed = Math.max(0, now - found.filledAt);
      found.tokens = Math.min(inFull, found.tokens + (passed / 1_000) * perSecond);
      found.filledAt = now;
      return found;
    }
    if (this.#buckets.size >= maxKeys) this.#forget();
    const bucket = { tokens: inFull, filledAt: now, leftOut: 0, repeat: undefined };
    this.#buckets.set(kind, bucket);
    return bucket;
  }

  /** Makes room for another kind, whose lines must not be left out for those of many others. */
  #forget(): void {
    this.summarize();
    for (const [kind] of this.#buckets) {
      this.#buckets.delete(kind);
      if (this.#buckets.size <= maxKeys / 2) return;
    }
  }
}
