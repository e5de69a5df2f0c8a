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
 * Gives a lease the time at which this process has seen it renewed, since the clock of the learner may differ from
 * ours. Only the lease that is there at the first look has the learner's time, or ours if that is in the future.
 */
export class LeaseClock {
  #renewedAt: number | undefined; // by the learner's clock
  #seenAt = 0; // by ours
  #hasLooked = false;

  /** @param at ms since the epoch, when the lease was read. */
  seen(lease: LeaderLease | undefined, at: number): LeaderLease | undefined {
    if (lease?.renewedAt !== this.#renewedAt) {
      this.#renewedAt = lease?.renewedAt;
      this.#seenAt = this.#hasLooked ? at : Math.min(at, lease?.renewedAt ?? at);
    }
    this.#hasLooked = true;
    return lease && { ...lease, renewedAt: this.#seenAt };
  }
}
