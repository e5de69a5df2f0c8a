import type { EventQueue } from './event-queue.js';

/** A ticket that an actor works on. */
export interface StartedGroup {
  readonly order: number;
  readonly attempt: number;
  readonly seconds: readonly number[]; // [answers] that each needs
}

/** An answer that was begun. */
export interface Answer {
  readonly seconds: number; // that it needs as a whole
  readonly startedAt: number; // seconds
  readonly endedAt: number; // seconds: of its last token, or of its cancellation
  readonly isWhole: boolean;
}

/** A group that an actor has sampled, or given up. */
export interface SampledGroup extends StartedGroup {
  readonly version: number; // of its first token
  readonly answers: readonly Answer[];
}

interface GroupInFlight extends StartedGroup {
  version: number | undefined; // undefined: it has no token yet
  readonly answers: Answer[];
  readonly running: Map<number, number>; // when each running answer started, by its index
}

export interface SlotPoolOptions {
  readonly slots: number; // answers sampled at once
  readonly answersNeeded: number; // whole answers that end a group; others of it are then cancelled
  readonly time: EventQueue;
  /** The version that samples the next token. */
  readonly newestVersion: () => number;
  readonly onSampled: (group: SampledGroup) => void;
}

/**
 * The slots of the sampler. Answers wait for a slot in the order in which their groups were started. The version of a
 * group is that of its first token, as in the product, where a group without tokens is never too old.
 */
export class SlotPool {
  readonly #options: SlotPoolOptions;
  readonly #inFlight = new Set<GroupInFlight>();
  #waiting: { readonly group: GroupInFlight; readonly index: number }[] = [];
  #free: number;

  constructor(options: SlotPoolOptions) {
    this.#options = options;
    this.#free = options.slots;
  }

  get groupsInFlight(): number {
    return this.#inFlight.size;
  }

  start(started: StartedGroup): void {
    const group = { ...started, version: undefined, answers: [], running: new Map() };
    this.#inFlight.add(group);
    started.seconds.forEach((_, index) => this.#waiting.push({ group, index }));
    this.#fill();
  }

  /** Cancels the groups that began with a version below `smallestUseful`, and returns them. */
  cancelBelow(smallestUseful: number): SampledGroup[] {
    const useless = [...this.#inFlight].filter(hasTokens).filter(isOlder);
    for (const group of useless) this.#end(group);
    this.#fill();
    return useless;

    function isOlder({ version }: SampledGroup): boolean {
      return version < smallestUseful;
    }
  }

  #fill(): void {
    while (this.#free > 0) {
      const next = this.#waiting.shift();
      if (next === undefined) return;
      this.#begin(next.group, next.index);
    }
  }

  #begin(group: GroupInFlight, index: number): void {
    const { time, newestVersion } = this.#options;
    this.#free -= 1;
    group.version ??= newestVersion();
    group.running.set(index, time.now);
    time.plan(time.now + group.seconds[index]!, () => {
      if (group.running.has(index)) this.#finish(group, index);
    });
  }

  #finish(group: GroupInFlight, index: number): void {
    this.#close(group, index, true);
    const isSampled = group.answers.length === this.#options.answersNeeded;
    if (isSampled) this.#end(group);
    this.#fill();
    if (isSampled && hasTokens(group)) this.#options.onSampled(group);
  }

  #end(group: GroupInFlight): void {
    this.#inFlight.delete(group);
    for (const index of [...group.running.keys()]) this.#close(group, index, false);
    this.#waiting = this.#waiting.filter((waiting) => waiting.group !== group);
  }

  #close(group: GroupInFlight, index: number, isWhole: boolean): void {
    const startedAt = group.running.get(index)!;
    group.running.delete(index);
    const seconds = group.seconds[index]!;
    group.answers.push({ seconds, startedAt, endedAt: this.#options.time.now, isWhole });
    this.#free += 1;
  }
}

function hasTokens(group: GroupInFlight): group is GroupInFlight & { version: number } {
  return group.version !== undefined;
}
