import { droppedLines } from './log-stream.js';

/** How many lines of a kind are logged at first, and how many a second after that. */
export interface RepetitionLimit {
  readonly inFull: number;
  readonly perSecond: number;
}

interface Bucket {
  tokens: number;
  filledAt: number; // ms
  leftOut: number; // since the last summary
  repeat: ((leftOut: number) => void) | undefined; // logs the newest omitted line
}

const summaryEveryMs = 10_000;
const maxKeys = 1_000;

/**
 * Logs the first lines of a kind, then few, and every 10 seconds the newest omitted line with the number
 * omitted, so that rapid failures cannot fill the disk.
 */
export class Repetitions {
  readonly #buckets = new Map<string, Bucket>();
  #summaries: NodeJS.Timeout | undefined;

  /**
   * Logs a line now, or leaves it out and counts it.
   *
   * @param kind lines of one kind are counted together.
   * @param emit logs the line; `leftOut` is the number omitted since the last summary, including this one.
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

  /** Logs a summary of each kind with omitted lines. */
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

  /** Evicts kinds to admit a new one, whose lines must not be omitted because of many others. */
  #forget(): void {
    this.summarize();
    for (const [kind] of this.#buckets) {
      this.#buckets.delete(kind);
      if (this.#buckets.size <= maxKeys / 2) return;
    }
  }
}
