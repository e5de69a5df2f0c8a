interface Waiter<Result> {
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}

/** Whether `item` can be sampled together with the items of `wave`, which is not empty. */
type JoinsWave<Item> = (item: Item, wave: readonly Item[]) => boolean;

/**
 * The items of the next wave: the first of the queue, and each later item that may join those already
 * chosen.
 *
 * @returns in the order of the queue; empty only if the queue is.
 */
export function takeWave<Item>(queue: Iterable<Item>, joins: JoinsWave<Item>): Item[] {
  const wave: Item[] = [];
  for (const item of queue) if (wave.length === 0 || joins(item, wave)) wave.push(item);
  return wave;
}

/** A queue of sampling requests, which are sampled in waves of several requests at once. */
export class WaveQueue<Item extends object, Result> {
  readonly #waiting = new Map<Item, Waiter<Result>>(); // in order of arrival
  #isServed = false;

  /** @param sampleWave samples a wave and returns the results in its order. */
  constructor(
    private readonly joins: JoinsWave<Item>,
    private readonly sampleWave: (wave: readonly Item[]) => Promise<readonly Result[]>,
  ) {}

  /** The number of waiting items. */
  get depth(): number {
    return this.#waiting.size;
  }

  /** Adds an item (a distinct object), which waits for `serve`. @returns its result. */
  add(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => this.#waiting.set(item, { resolve, reject }));
  }

  /** Removes a waiting item and settles it with `result`. */
  withdraw(item: Item, result: Result): void {
    this.#waiting.get(item)?.resolve(result);
    this.#waiting.delete(item);
  }

  /** Samples waves until the queue is empty; returns at once if another call is already doing so. */
  async serve(): Promise<void> {
    if (this.#isServed) return;
    this.#isServed = true;
    while (this.#waiting.size > 0) {
      const wave = takeWave(this.#waiting.keys(), this.joins);
      const waiters = new Map(wave.map((item) => [item, this.#waiting.get(item)!]));
      for (const item of wave) this.#waiting.delete(item);
      await this.#sample(waiters);
    }
    this.#isServed = false;
  }

  async #sample(wave: ReadonlyMap<Item, Waiter<Result>>): Promise<void> {
    const waiters = [...wave.values()];
    try {
      const results = await this.sampleWave([...wave.keys()]);
      results.forEach((result, i) => {
        waiters[i]!.resolve(result);
      });
    } catch (error) {
      // Isolate the failing item: sample each alone.
      if (wave.size > 1) for (const one of wave) await this.#sample(new Map([one]));
      else waiters[0]!.reject(error);
    }
  }
}
