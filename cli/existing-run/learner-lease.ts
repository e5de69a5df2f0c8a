import type { LeaderLease } from '../../shared/wire/ledger.js';

/** A learner renews its lease every 2.5 seconds, or less often with a longer --lease-seconds. */
const leadershipSeconds = 30;

/** Long enough for a learner to renew its lease, as a rule. */
export const usualRenewalMs = 3_000;

/**
 * Whether a learner leads the run, judged by its lease, which stays for a while after a killed learner.
 *
 * @param at ms since the epoch, by the clock that `leader` has its time from: see `LeaseClock`.
 */
export function hasLearner(leader: LeaderLease | undefined, at: number): boolean {
  return leader !== undefined && at - leader.renewedAt <= 1_000 * leadershipSeconds;
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
