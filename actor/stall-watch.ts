/** Notices when a sampler that has something to do gives no sign of life. */
export class StallWatch {
  readonly #fixedSeconds: number | undefined;
  readonly #firstSeconds: number;
  readonly #leastSeconds: number;
  #longest: number | undefined; // silence so far that ended, in seconds
  #silent = 0; // seconds

  /**
   * @param fixedSeconds a limit that somebody set; undefined: it follows from what the sampler takes.
   * @param firstSeconds the limit as long as there was no sign at all.
   * @param leastSeconds the least that it is afterwards.
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
      : Math.max(this.#leastSeconds, 10 * this.#longest);
  }

  /** A sign of life after so many seconds of work, or else after those that have passed here. */
  sign(seconds = this.#silent): void {
    this.#longest = Math.max(seconds, this.#longest ?? 0);
    this.#silent = 0;
  }

  /** There was nothing to do. */
  rest(): void {
    this.#silent = 0;
  }

  /**
   * So many seconds of work went by. @returns how long it has been silent, if that is too long.
   */
  pass(seconds: number): number | undefined {
    this.#silent += seconds;
    return this.#silent > this.limit ? this.#silent : undefined;
  }
}
