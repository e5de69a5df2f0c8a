import { errorText } from '../../shared/base/errors.js';
import type { Broker } from '../../shared/broker/broker.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { ActorLease } from '../../shared/wire/actor-lease.js';

/** Reports the actors that do not reproduce the newest canary, in the log and in the run's events: each version of an actor once. */
export class RefusalReports {
  readonly #reported = new Map<string, number>(); // version by actor

  constructor(
    private readonly events: Pick<Broker['events'], 'emit'>,
    private readonly log: Logger,
  ) {}

  /** @param live the leases of live actors. */
  async report(live: readonly ActorLease[]): Promise<void> {
    for (const { actor, refused } of live) {
      if (refused === undefined || this.#reported.get(actor) === refused.version) continue;
      const { attempts: _attempts, ...finding } = refused;
      this.#reported.set(actor, refused.version);
      this.log.error({ actor, ...finding }, 'actor does not reproduce the policy');
      try {
        await this.events.emit({ v: 1, at: Date.now(), kind: 'refusal', actor, ...finding });
      } catch (caught) {
        this.#reported.delete(actor);
        this.log.debug({ reason: errorText(caught) }, 'refusal not reported');
      }
    }
  }
}
