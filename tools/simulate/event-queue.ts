/** Something that happens at a moment of simulated time. */
interface Event {
  readonly at: number; // seconds
  readonly rank: number; // events of one moment happen in the order in which they were planned
  readonly happen: () => void;
}

/** Simulated time: the events that are planned, as a binary heap with the next one at its root. */
export class EventQueue {
  readonly #heap: Event[] = [];
  #planned = 0;
  #now = 0;

  /** Seconds since the start of the simulation. */
  get now(): number {
    return this.#now;
  }

  /** @param at seconds; not in the past. */
  plan(at: number, happen: () => void): void {
    if (!(at >= this.#now)) throw new RangeError(`cannot plan for ${at} s: it is ${this.#now} s`);
    const event = { at, rank: this.#planned++, happen };
    let i = this.#heap.push(event) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!isBefore(event, this.#heap[parent]!)) break;
      this.#heap[i] = this.#heap[parent]!;
      i = parent;
    }
    this.#heap[i] = event;
  }

  /** Advances the time to the next event and lets it happen. @returns false if none is planned. */
  step(): boolean {
    const next = this.#heap[0];
    const last = this.#heap.pop();
    if (next === undefined || last === undefined) return false;
    if (this.#heap.length > 0) this.#sink(last);
    this.#now = next.at;
    next.happen();
    return true;
  }

  /** Puts an event in the place of the root, and restores the heap. */
  #sink(event: Event): void {
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= this.#heap.length) break;
      const right = this.#heap[child + 1];
      if (right !== undefined && isBefore(right, this.#heap[child]!)) child += 1;
      if (!isBefore(this.#heap[child]!, event)) break;
      this.#heap[i] = this.#heap[child]!;
      i = child;
    }
    this.#heap[i] = event;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.at < b.at || (a.at === b.at && a.rank < b.rank);
}
