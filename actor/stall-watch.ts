/** Detects a sampler that has work but makes no progress. */
export class StallWatch {
  /** How many times the longest silence so far is too long. */
  static readonly factor = 10;
  readonly #fixedSeconds: number | undefined;
  readonly #firstSeconds: number;
  readonly #leastSeconds: number;
  #longest: number | undefined; // longest silence that ended, in seconds
  #silent = 0; // seconds

  /**
   * @param fixedSeconds a configured limit; undefined: derived from the sampler's own pace.
   * @param firstSeconds the limit until the first progress.
   * @param leastSeconds the smallest limit afterwards.
   */
  constructor(fixedSeconds: number | undefined, firstSeconds: number, leastSeconds = 60) {
    this.#fixedSeconds = fixedSeconds;
    this.#firstSeconds = firstSeconds;
    this.#leastSeconds = leastSeconds;
  }

  /** Seconds of silence after which the sampler counts as hung. */
  get limit(): number {
    if (this.#fixedSeconds !== undefined) return this.#fixedSeconds;
    return this.#longest === undefined
      ? this.#firstSeconds
      : Math.max(this.#leastSeconds, StallWatch.factor * this.#longest);
  }

  /** Records progress after so many seconds of work; by default those counted by this watch. */
  progressed(seconds = this.#silent): void {
    this.#longest = Math.max(seconds, this.#longest ?? 0);
    this.#silent = 0;
  }

  /** Makes the limit at least twice a time that exceeded it, up to the first limit: the work may have grown. */
  exceeded(seconds: number): void {
    const limit = Math.min(2 * seconds, this.#firstSeconds);
    this.#longest = Math.max(limit / StallWatch.factor, this.#longest ?? 0);
  }

  /** Resets the silence, because there was nothing to do. */
  idle(): void {
    this.#silent = 0;
  }

  /**
   * Counts seconds of work without progress. @returns the length of the silence if it is too long.
   */
  waited(seconds: number): number | undefined {
    this.#silent += seconds;
    return this.#silent > this.limit ? this.#silent : undefined;
  }
}
