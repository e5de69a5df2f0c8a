import {
  type EngineMetrics,
  hasWorked,
  isAnotherProcess,
} from '../../shared/engine/engine-metrics.js';
import { StallWatch } from '../stall-watch.js';

/** Why a server is out of use. */
export type Outage =
  | 'down' // it does not answer, or fails
  | 'hung' // it answers, but draws no tokens
  | 'restarted' // it is another process than the one that was proven
  | 'evicted' // it had more adapters than slots, so one in use may have lost its place
  | 'load' // it does not load a version
  | 'canary'; // it does not reproduce the canary of a version

/** Until a server has drawn its first tokens: it may compile kernels. */
const firstSilenceSeconds = 120;
/** A server that is busy counts new tokens at every check, so this is many checks. */
const leastSilenceSeconds = 10;

/**
 * Judges by what a server counts whether it is still the same process, and works while it has calls. A server without metrics is
 * judged by its answers alone.
 */
export class EngineWatch {
  readonly #silence: StallWatch;
  #last: EngineMetrics | undefined;
  #hungSeconds = 0; // of the silence for which it was taken for hung

  /** @param stallSeconds time without a token after which it counts as hung; undefined: derived from its pace. */
  constructor(stallSeconds: number | undefined) {
    this.#silence = new StallWatch(stallSeconds, firstSilenceSeconds, leastSilenceSeconds);
  }

  /**
   * Looks at the server again.
   *
   * @param shown its metrics; 'late': they did not come in time; undefined: it shows none.
   * @param isBusy whether it has had calls of ours since the last look.
   * @param seconds since then.
   * @returns what is wrong; undefined: nothing, as far as is known.
   */
  look(
    shown: EngineMetrics | 'late' | undefined,
    isBusy: boolean,
    seconds: number,
  ): { readonly outage: Outage; readonly reason: string } | undefined {
    const before = this.#last;
    const now = shown === 'late' ? undefined : shown;
    this.#last = now ?? before;
    if (before !== undefined && now !== undefined && isAnotherProcess(before, now)) {
      this.#silence.idle();
      return { outage: 'restarted', reason: 'it was restarted, or another server took its place' };
    }
    const counts = before?.generatedTokens !== undefined || before?.promptTokens !== undefined;
    const isSilent = shown === 'late' && counts; // counts that no longer come are silence, too
    const worked = isSilent ? false : before && now && hasWorked(before, now);
    if (!isBusy || worked === undefined) {
      this.#silence.idle();
      return undefined;
    }
    if (worked) {
      this.#silence.progressed();
      return undefined;
    }
    const silent = this.#silence.waited(seconds);
    if (silent === undefined) return undefined;
    this.#silence.idle();
    this.#hungSeconds = silent;
    const running = now?.running === undefined ? '' : `, with ${now.running} sequences running`;
    return {
      outage: 'hung',
      reason: `it draws no tokens: none for ${Math.round(silent)} s${running}`,
    };
  }

  /**
   * Begins again with a server that is used again.
   *
   * @param now its metrics. If it is still the process that was taken for hung, it was only slow, and is given twice the time.
   */
  restart(now: EngineMetrics | undefined): void {
    const isSame = this.#last && now && !isAnotherProcess(this.#last, now);
    this.#silence.idle();
    if (this.#hungSeconds > 0 && isSame === true) {
      this.#silence.progressed((2 * this.#hungSeconds) / StallWatch.factor);
    }
    this.#hungSeconds = 0;
    this.#last = now;
  }
}
