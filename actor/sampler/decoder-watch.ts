import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { StallWatch } from '../stall-watch.js';

const firstStallSeconds = 600; // the weights and the first prompts on a slow machine
/** A process that was suspended did not wait for its decoder, so a longer time between two looks does not count. */
const mostSeconds = 2;

/**
 * Distinguishes a decoder that hangs from one that is slow or gets no processor. Its silence is the time without a token in
 * which it was blocked or computed; the time in which it was ready to compute and the machine was too busy is left out.
 */
export class DecoderWatch {
  readonly #stalls: StallWatch;
  readonly #waits: Pick<ProcessorWaits, 'since'>;
  #lookedAt: number; // ms

  /** @param stallSeconds a configured limit of the silence; undefined: derived from the decoder's own pace. */
  constructor(
    stallSeconds: number | undefined,
    now: number,
    waits: Pick<ProcessorWaits, 'since'> = new ProcessorWaits(),
  ) {
    this.#stalls = new StallWatch(stallSeconds, firstStallSeconds);
    this.#waits = waits;
    this.#lookedAt = now;
  }

  /** It has read texts or drawn tokens: from such silences the limit is derived. */
  drew(): void {
    this.#stalls.progressed();
  }

  /** It has answered without drawing, which shows only that it does not hang. */
  answered(): void {
    this.#stalls.idle();
  }

  /**
   * To be called about once a second.
   *
   * @param now in ms.
   * @param isBusy whether the decoder has something to do.
   * @returns the length of the silence, in seconds, if it is too long.
   */
  look(now: number, isBusy: boolean): number | undefined {
    const elapsed = (now - this.#lookedAt) / 1_000;
    this.#lookedAt = now;
    if (!isBusy) {
      this.#stalls.idle();
      return undefined;
    }
    // Not without work: this reads a file of each thread, every second.
    const starved = this.#waits.since();
    return this.#stalls.waited(Math.min(Math.max(0, elapsed - starved), mostSeconds));
  }
}

/**
 * How long threads of this process were ready to run and got no processor, as Linux counts it; on other systems
 * nothing is known and nothing is counted. A thread that is blocked by a lock, the disk or a missing message is not
 * ready, so its time is not counted.
 */
export class ProcessorWaits {
  #before = new Map<string, number>(); // by thread: its waits so far, in ns

  /**
   * @param folder what Linux shows of the threads of a process: a folder each, with a file `schedstat`.
   * @param mainThread the folder that is left out: the main thread does not compute.
   */
  constructor(
    private readonly folder = '/proc/self/task',
    private readonly mainThread = String(process.pid),
  ) {}

  /** The longest wait of one thread since the last call, in seconds; a thread counts from the second call on. */
  since(): number {
    const before = this.#before;
    this.#before = this.#waits();
    const added = [...this.#before].map(([thread, wait]) => wait - (before.get(thread) ?? wait));
    return Math.max(0, ...added) / 1e9;
  }

  #waits(): Map<string, number> {
    const waits = new Map<string, number>();
    for (const thread of this.#threads()) {
      const wait = this.#waitOf(thread);
      if (wait !== undefined) waits.set(thread, wait);
    }
    return waits;
  }

  #threads(): string[] {
    try {
      return readdirSync(this.folder).filter((thread) => thread !== this.mainThread);
    } catch {
      return []; // not Linux
    }
  }

  /** The second of its numbers, after the time that it ran. */
  #waitOf(thread: string): number | undefined {
    try {
      const [, wait] = readFileSync(join(this.folder, thread, 'schedstat'), 'utf8').split(' ');
      return wait === undefined ? undefined : Number(wait);
    } catch {
      return undefined; // it has just ended, or this kernel does not count
    }
  }
}
