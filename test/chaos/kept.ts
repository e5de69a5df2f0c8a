import { setTimeout as sleep } from 'node:timers/promises';
import type { ServiceProcess } from '../support/service-process.js';
import { gate } from '../support/waiting.js';

/** A service that is restarted whenever it ends, like a pod, until it is released. */
export class Kept {
  process: ServiceProcess;
  /** Exit codes of the times that it ended by itself. */
  readonly ownEnds: (number | null)[] = [];
  /** The last such end, with its error text. */
  lastEnd: { readonly code: number | null; readonly words: string } | undefined;
  readonly #keeping: Promise<void>;
  #isKept = true;
  #wasHit = false;
  #pause: ReturnType<typeof gate> | undefined;
  #logBytesBefore = 0;

  constructor(
    readonly name: string,
    private readonly start: () => ServiceProcess,
    private readonly report: (line: string) => void,
  ) {
    this.process = start();
    this.#keeping = this.#keep();
  }

  /** The bytes that all of its processes have logged. */
  get logBytes(): number {
    return this.#logBytesBefore + this.process.logBytes;
  }

  /** Ends it; it is restarted. */
  hit(signal: 'SIGKILL' | 'SIGTERM'): void {
    this.#wasHit = true;
    void this.process.stop(signal);
  }

  /** Ends it, and keeps it down until the returned function is called. */
  async down(signal: 'SIGKILL' | 'SIGTERM'): Promise<() => void> {
    const pause = gate();
    this.#pause = pause;
    this.hit(signal);
    await this.process.exitCode();
    return pause.open;
  }

  /**
   * Ends it for good.
   *
   * @returns its exit code; undefined if it could not be asked, since it had been killed, or had
   *   just started and did not listen for signals yet.
   */
  async letGo(): Promise<number | null | undefined> {
    this.#isKept = false;
    this.#pause?.open();
    const { process } = this;
    const isThere = !this.#wasHit && !process.hasEnded && process.log.length > 0;
    const code = await process.stop('SIGTERM');
    await this.#keeping;
    return isThere ? code : undefined;
  }

  #hasBeenLetGo(): boolean {
    return !this.#isKept;
  }

  async #keep(): Promise<void> {
    for (;;) {
      const code = await this.process.exitCode();
      if (!this.#wasHit && this.#isKept) {
        this.ownEnds.push(code);
        const words = this.process.errors + this.process.tail;
        this.lastEnd = { code, words };
        this.report(`${this.name} ended with ${code ?? 'none'}:\n${words}`);
      }
      this.#wasHit = false;
      if (this.#hasBeenLetGo()) return;
      await sleep(300);
      await this.#pause?.opened;
      if (this.#hasBeenLetGo()) return;
      this.#logBytesBefore += this.process.logBytes;
      this.process = this.start();
    }
  }
}
