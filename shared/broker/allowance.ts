const maxKeys = 10_000;

/** A token bucket for each key: `atOnce` actions in a burst, refilled at `perHour`. */
export class Allowance {
  readonly #atOnce: number;
  readonly #perMs: number;
  readonly #left = new Map<string, { tokens: number; at: number }>(); // at: ms

  constructor({ atOnce, perHour }: { readonly atOnce: number; readonly perHour: number }) {
    this.#atOnce = atOnce;
    this.#perMs = perHour / 3_600_000;
  }

  /** Takes a token of `who`. @returns whether there was one. */
  take(who: string): boolean {
    const now = performance.now();
    const before = this.#left.get(who) ?? { tokens: this.#atOnce, at: now };
    const tokens = Math.min(this.#atOnce, before.tokens + (now - before.at) * this.#perMs);
    const isAllowed = tokens >= 1;
    this.#left.delete(who); // moves the key to the end: the least recently used one is evicted first
    this.#left.set(who, { tokens: isAllowed ? tokens - 1 : tokens, at: now });
    if (this.#left.size > maxKeys) this.#left.delete(this.#left.keys().next().value!);
    return isAllowed;
  }
}
