import { createRandom } from '../../shared/base/random.js';

/**
 * A sequence of problems that goes through all of them once an epoch, each time in an order of its own.
 * A function of the seed alone: the same for whoever asks, and whenever.
 */
export class EpochOrder {
  readonly #epochs = new Map<number, readonly number[]>();

  /** @param size how many problems there are, at least one. */
  constructor(
    private readonly seed: number,
    private readonly size: number,
  ) {
    if (size === 0) throw new RangeError('EpochOrder: no problem to train on');
  }

  /** The index of the problem at a position of the sequence. */
  problemAt(order: number): number {
    const epoch = Math.floor(order / this.size);
    let problems = this.#epochs.get(epoch);
    if (problems === undefined) {
      const all = Array.from({ length: this.size }, (_, index) => index);
      problems = createRandom(`${this.seed} epoch ${epoch}`).shuffle(all);
      this.#epochs.set(epoch, problems);
      this.#epochs.delete(epoch - 2); // a reissue may still reach into the one before
    }
    return problems[order % this.size]!;
  }
}
