/**
 * Notices that a server has more adapters than slots: it then evicts some, perhaps one that is being sampled with. It
 * reports each new set of adapters that is too large, except the set that the server had when all of ours were last proven.
 */
export class SlotWatch {
  #excess = ''; // the adapters when they were last too many

  /**
   * @param capacity adapters that one batch may use; undefined: the server does not say it.
   * @param isOwn whether an adapter was loaded by this process.
   */
  constructor(
    private readonly capacity: number | undefined,
    private readonly isOwn: (name: string) => boolean,
  ) {}

  /** Whether there is anything to look for. */
  get isKnown(): boolean {
    return this.capacity !== undefined;
  }

  /** @param names of the adapters of a server that proves all of ours again. */
  restart(names: readonly string[]): void {
    this.#excess = this.#excessOf(names);
  }

  /**
   * @returns the reason why the server must prove all of our adapters again before its tokens count; undefined: none.
   */
  look(names: readonly string[]): string | undefined {
    const excess = this.#excessOf(names);
    if (excess === this.#excess) return undefined;
    this.#excess = excess;
    if (excess === '') return undefined;
    const others = names.filter((name) => !this.isOwn(name));
    return `it has ${names.length} adapters and slots for ${this.capacity}, so one in use may have been evicted; unload those of others (${others.join(', ').slice(0, 200)}), or divide the slots with --engine-max-loras`;
  }

  /** The adapters of a server that has more of them than slots, else nothing. */
  #excessOf(names: readonly string[]): string {
    return names.length > (this.capacity ?? Infinity) ? [...names].sort().join(' ') : '';
  }
}
