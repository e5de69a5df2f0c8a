import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../shared/broker/broker.js';
import { UserError } from '../shared/base/errors.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import type { ActorLease } from '../shared/wire/actor-lease.js';

const renewEveryMs = 2_000;

/**
 * Tells the run every 2 s that this actor lives and which is the oldest version that it still needs,
 * so that the learner retires none of those. Resolves once `signal` aborts.
 *
 * @param lease what to tell; undefined while the actor needs no version yet.
 */
export async function renewLease(
  actors: Pick<Broker['actors'], 'renew'>,
  lease: () => ActorLease | undefined,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    const current = lease();
    try {
      if (current !== undefined) await actors.renew(current);
    } catch (err) {
      if (err instanceof UserError || signal.aborted) throw err;
      log.warn({ err }, 'lease not renewed, trying again');
    }
    await sleep(renewEveryMs, undefined, { signal });
  }
}
