import { setTimeout as sleep } from 'node:timers/promises';
import type { ServiceProcess } from '../support/service-process.js';

/** A service that is started again whenever it has ended, as a pod is, until it is let go. */
export class Kept {
  process: ServiceProcess;
  /** How its lives ended that nobody ended: exit codes. */
  readonly ownEnds: (number | null)[] = [];
  readonly #keeping: Promise<void>;
  #isKept = true;
  #wasHit = false;
  #stepsBefore = 0;

  constructor(
    readonly name: string,
    private readonly start: () => ServiceProcess,
    private readonly report: (line: string) => void,
  ) {
    this.process = start();
    this.#keeping = this.#keep();
  }

  /** Steps that it told of in all of its lives. */
  get steps(): number {
    return this.#stepsBefore + stepsOf(this.process);
  }

  /** Its end is our doing from now on. */
  hit(signal: 'SIGKILL' | 'SIGTERM'): void {
    this.#wasHit = true;
    void this.process.stop(signal);
  }

  /**
   * Ends it for good.
   *
   * @returns its exit code; undefined if it was not there to be asked, since it had been killed, or had
   *   started a moment ago and did not listen for signals yet.
   */
  async letGo(): Promise<number | null | undefined> {
    this.#isKept = false;
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
        this.report(`${this.name} ended with ${code ?? 'none'}:\n${this.process.tail}`);
      }
      this.#wasHit = false;
      if (this.#hasBeenLetGo()) return;
      await sleep(300);
      if (this.#hasBeenLetGo()) return;
      this.#stepsBefore += stepsOf(this.process);
      this.process = this.start();
    }
  }
}

function stepsOf({ log }: ServiceProcess): number {
  return log.filter(({ msg }) => msg === 'step trained').length;
}
