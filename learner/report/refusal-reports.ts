import { errorText } from '../../shared/base/errors.js';
import { Allowance } from '../../shared/broker/allowance.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { ActorLease, CanaryRefusal } from '../../shared/wire/actor-lease.js';

/**
 * Reports the actors that do not reproduce the newest canary, and the servers of actors that do not reproduce one, in the log
 * and in the run's events: each version of an actor or server once.
 */
export class RefusalReports {
  readonly #reported = new Map<string, number>(); // version by actor and server
  /** An actor's lease may claim anything, and the log of events must keep what matters. */
  readonly #allowance = new Allowance({ atOnce: 64, perHour: 60 });

  constructor(
    private readonly events: Pick<Broker['events'], 'emit'>,
    private readonly log: Logger,
  ) {}

  /** @param live the leases of live actors. */
  async report(live: readonly ActorLease[]): Promise<void> {
    for (const { actor, refused, engines = [] } of live) {
      if (refused !== undefined) await this.#report({ actor }, refused);
      for (const { url: engine, refused: byServer } of engines) {
        if (byServer !== undefined) await this.#report({ actor, engine }, byServer);
      }
    }
  }

  async #report(
    by: { readonly actor: string; readonly engine?: string },
    { attempts: _attempts, ...finding }: CanaryRefusal,
  ): Promise<void> {
    const key = `${by.actor} ${by.engine ?? ''}`;
    if (this.#reported.get(key) === finding.version || !this.#allowance.take(by.actor)) return;
    this.#reported.set(key, finding.version);
    const what = by.engine === undefined ? 'actor' : 'engine';
    this.log.error({ ...by, ...finding }, `${what} does not reproduce the policy`);
    try {
      await this.events.emit({ v: 1, at: Date.now(), kind: 'refusal', ...by, ...finding });
    } catch (caught) {
      this.#reported.delete(key);
      this.log.debug({ reason: errorText(caught) }, 'refusal not reported');
    }
  }
}
