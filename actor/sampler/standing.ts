import { errorText, PermanentError } from '../../shared/base/errors.js';
import { EngineDown } from '../../shared/engine/engine-http.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { CanaryRefusal } from '../../shared/wire/actor-lease.js';
import type { Outage } from './engine-watch.js';
import { CanaryNotReproduced, refusalOf } from './refusal.js';

export interface StandingOptions {
  readonly url: string; // of the server
  readonly refusedMs?: number | undefined; // until one that was refused is asked again
  readonly log: Logger;
  /** A steady clock, in ms. */
  readonly now: () => number;
  /** Called when the server goes out of use or comes back. */
  readonly onChange: (outage: Outage | undefined) => void;
  /** Called at each attempt at which the server does not load a version or reproduce its canary. */
  readonly onRefusal: (outage: Outage) => void;
}

const usualRefusedMs = 30_000;

/** Whether a server of an engine is used, with which adapters, and why not. */
export class Standing {
  /** Names of the adapters that it may sample with. */
  readonly proven = new Set<string>();
  #reason: string | undefined;
  #refused: CanaryRefusal | undefined;
  #restingUntil = -Infinity;
  #outages = 0;
  #trust = new AbortController();

  constructor(private readonly options: StandingOptions) {}

  get isUp(): boolean {
    return this.#reason === undefined;
  }

  /** Why the server is not used; undefined if it is. */
  get reason(): string | undefined {
    return this.#reason;
  }

  /** The version whose canary it did not reproduce, if it is not used for that reason. */
  get refused(): CanaryRefusal | undefined {
    return this.#refused;
  }

  /** Whether it was refused so recently that it is not asked again yet. */
  get isResting(): boolean {
    return this.options.now() < this.#restingUntil;
  }

  /** How often it was lost, to notice that during a proof. */
  get outages(): number {
    return this.#outages;
  }

  /** Aborts with the reason why what the server draws can no longer be used. */
  get trust(): AbortSignal {
    return this.#trust.signal;
  }

  /** Takes the server out of use because it does not load a version or reproduce its canary; it is asked again after a while. */
  refuse(error: unknown): void {
    const { url, refusedMs = usualRefusedMs, log, now, onRefusal } = this.options;
    this.#restingUntil = now() + refusedMs;
    const outage = error instanceof PermanentError ? 'canary' : 'load';
    const reason = errorText(error);
    const { isUp: wasUp, refused: before } = this;
    this.distrust(outage, reason);
    if (error instanceof CanaryNotReproduced) this.#refused = refusalOf(error.finding, before);
    if (!wasUp) log.error({ url, outage, reason }, 'engine stays out of use');
    onRefusal(outage);
  }

  /** Takes the server out of use and ends its calls too: their tokens may come from other weights. */
  distrust(outage: Outage, reason: string): void {
    this.lose(outage, reason);
    const trust = this.#trust;
    this.#trust = new AbortController();
    trust.abort(new EngineDown(`${this.options.url}: ${reason}`));
  }

  /** Takes the server out of use, but not the calls that it may still answer. */
  lose(outage: Outage, reason: string): void {
    const { url, log, onChange } = this.options;
    const wasUp = this.isUp;
    this.#outages++;
    this.proven.clear();
    this.stayDown(reason);
    if (!wasUp) return;
    log.error({ url, outage, reason }, 'engine is out of use');
    onChange(outage);
  }

  /** It is still out of use, now for this reason. */
  stayDown(reason: string): void {
    this.#reason = reason;
    this.#refused = undefined;
  }

  /** It is used again, with the adapters that it has proven. */
  readmit(release: string | undefined): void {
    const { url, log, onChange } = this.options;
    this.#reason = undefined;
    this.#refused = undefined;
    log.info({ url, release, adapters: this.proven.size }, 'engine is in use again');
    onChange(undefined);
  }
}
