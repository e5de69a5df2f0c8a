import type { ActorLease } from '../../shared/wire/actor-lease.js';
import { expiryOf, type LeaderLease } from '../../shared/wire/ledger.js';

/** Long enough for a learner to renew this lease, as a rule: it does so six times before the lease expires. At most 30 seconds. */
export function usualRenewalMs(lease: LeaderLease): number {
  return Math.min(expiryOf(lease) / 5, 30_000);
}

/**
 * Whether a learner leads the run, judged by its lease, which stays for a while after a killed learner.
 *
 * @param at ms since the epoch, by the clock that `leader` has its time from: see `LeaseClock`.
 */
export function hasLearner(leader: LeaderLease | undefined, at: number): boolean {
  // Twice, since a learner keeps an expired lease until another one takes it.
  return leader !== undefined && at - leader.renewedAt <= 2 * expiryOf(leader);
}

/**
 * Gives a lease the time at which this process has seen it renewed, since the clock of its holder may differ from
 * ours. Only the lease that is there at the first look has its holder's time, or ours if that is in the future.
 */
class RenewalClock {
  #renewedAt: number | undefined; // by the clock of the holder
  #seenAt = 0; // by ours
  #hasLooked = false;

  /** @param at ms since the epoch, when the lease was read. */
  seenAt(renewedAt: number | undefined, at: number): number {
    if (renewedAt !== this.#renewedAt) {
      this.#renewedAt = renewedAt;
      this.#seenAt = this.#hasLooked ? at : Math.min(at, renewedAt ?? at);
    }
    this.#hasLooked = true;
    return this.#seenAt;
  }
}

/** The lease of the learner, by our clock. */
export class LeaseClock {
  readonly #clock = new RenewalClock();

  /** @param at ms since the epoch, when the lease was read. */
  seen(lease: LeaderLease | undefined, at: number): LeaderLease | undefined {
    const renewedAt = this.#clock.seenAt(lease?.renewedAt, at);
    return lease && { ...lease, renewedAt };
  }
}

/** The leases of actors, by our clock. */
export class ActorLeaseClock {
  readonly #clocks = new Map<string, RenewalClock>();

  /** @param at ms since the epoch, when the leases were read. @returns them in the same order. */
  seen(leases: readonly ActorLease[], at: number): ActorLease[] {
    return leases.map((lease) => {
      const clock = this.#clocks.get(lease.actor) ?? new RenewalClock();
      this.#clocks.set(lease.actor, clock);
      return { ...lease, lastSeenAt: clock.seenAt(lease.lastSeenAt, at) };
    });
  }
}
