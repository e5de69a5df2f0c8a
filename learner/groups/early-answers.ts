import type { Death } from '../../shared/broker/dead-letter-watch.js';
import type { Delivery } from '../../shared/broker/delivery.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';

type EarlyAnswer = { readonly group: Delivery<ScoredGroup> } | { readonly death: Death };

/** Groups and deaths of attempts that are not in the ticket table yet. */
export class EarlyAnswers {
  readonly #groups = new Map<number, Map<number, Delivery<ScoredGroup>>>(); // by order and attempt
  readonly #deaths = new Map<number, Map<number, Death>>();
  readonly #isConsumed: (order: number) => boolean;
  #bytes = 0;

  /** @param isConsumed whether a ticket is consumed, so that its answers can be forgotten. */
  constructor(isConsumed: (order: number) => boolean) {
    this.#isConsumed = isConsumed;
  }

  /** About how much memory the groups take. */
  get bytes(): number {
    return this.#bytes;
  }

  /** @returns false if a group of this attempt is kept already. */
  keepGroup(order: number, attempt: number, group: Delivery<ScoredGroup>): boolean {
    const attempts = this.#attempts(this.#groups, order);
    if (attempts.has(attempt)) return false;
    attempts.set(attempt, group);
    this.#bytes += bytesOf(group);
    return true;
  }

  keepDeath(order: number, attempt: number, death: Death): void {
    this.#attempts(this.#deaths, order).set(attempt, death);
  }

  has(order: number, attempt: number): boolean {
    return (
      this.#groupOf(order, attempt) !== undefined || this.#deathOf(order, attempt) !== undefined
    );
  }

  /** Removes and returns the group of this attempt or a later one, else the death of exactly this attempt. */
  take(order: number, attempt: number): EarlyAnswer | undefined {
    const found = this.#groupOf(order, attempt);
    if (found !== undefined) {
      this.#groups.get(order)!.delete(found[0]);
      this.#bytes -= bytesOf(found[1]);
      return { group: found[1] };
    }
    const death = this.#deathOf(order, attempt);
    this.#deaths.get(order)?.delete(attempt);
    return death && { death };
  }

  #groupOf(order: number, minAttempt: number): [number, Delivery<ScoredGroup>] | undefined {
    const attempts = [...(this.#groups.get(order) ?? [])].sort(([a], [b]) => a - b);
    return attempts.find(([attempt]) => attempt >= minAttempt);
  }

  #deathOf(order: number, attempt: number): Death | undefined {
    return this.#deaths.get(order)?.get(attempt);
  }

  #attempts<T>(all: Map<number, Map<number, T>>, order: number): Map<number, T> {
    this.#forget();
    const attempts = all.get(order) ?? new Map<number, T>();
    all.set(order, attempts);
    return attempts;
  }

  #forget(): void {
    for (const [order, attempts] of this.#groups) {
      if (!this.#isConsumed(order)) continue;
      for (const group of attempts.values()) this.#bytes -= bytesOf(group);
      this.#groups.delete(order);
    }
    for (const order of this.#deaths.keys()) {
      if (this.#isConsumed(order)) this.#deaths.delete(order);
    }
  }
}

/** Tokens and logprobs, and the objects around them. */
function bytesOf({ value: { group } }: Delivery<ScoredGroup>): number {
  return 2_048 + group.rollouts.reduce((sum, { tokens }) => sum + 8 * tokens.length + 1_024, 0);
}
