import { Changes } from '../shared/base/changes.js';

/** How many groups an actor samples at once; it may change while it runs. */
export class GroupLimit {
  readonly #changes = new Changes();
  #now: number;
  #active = 0;

  /** @param most the largest that it may become. */
  constructor(
    now: number,
    readonly most = now,
  ) {
    this.#now = now;
  }

  get now(): number {
    return this.#now;
  }

  /** Groups that are being sampled. */
  get active(): number {
    return this.#active;
  }

  /** Groups beyond a lower limit go on to their end. */
  set(limit: number): void {
    this.#now = limit;
    this.#changes.notify();
  }

  /** Resolves once the limit is above `index`, for work that is numbered from 0. */
  async above(index: number, signal: AbortSignal): Promise<void> {
    while (index >= this.#now) await this.#change(signal);
  }

  /** Waits until fewer groups than the limit are sampled, and counts one more until the result is disposed of. */
  async enter(signal: AbortSignal): Promise<Disposable> {
    signal.throwIfAborted();
    while (this.#active >= this.#now) await this.#change(signal);
    this.#active++;
    return {
      [Symbol.dispose]: () => {
        this.#active--;
        this.#changes.notify();
      },
    };
  }

  async #change(signal: AbortSignal): Promise<void> {
    await this.#changes.next(signal);
    signal.throwIfAborted();
  }
}
