import { createRandom } from '../../shared/base/random.js';

/**
 * The sequence of problems that visits each problem once per epoch, in a different order each epoch. It is
 * a pure function of the seed.
 */
export class EpochOrder {
  readonly #epochs = new Map<number, readonly number[]>();

  /** @param size the number of problems, at least one. */
  constructor(
    private readonly seed: number,
    private readonly size: number,
  ) {
    if (size === 0) throw new RangeError('EpochOrder: no problem to train on');
  }

  /** Returns the index of the problem at a position of the sequence. */
  problemAt(order: number): number {
    const epoch = Math.floor(order / this.size);
    let problems = this.#epochs.get(epoch);
    if (problems === undefined) {
      const all = Array.from({ length: this.size }, (_, index) => index);
      problems = createRandom(`${this.seed} epoch ${epoch}`).shuffle(all);
      this.#epochs.set(epoch, problems);
      this.#epochs.delete(epoch - 2); // a reissue may still need the previous epoch
    }
    return problems[order % this.size]!;
  }
}
