import { setTimeout as sleep } from 'node:timers/promises';
import { errorText } from '../base/errors.js';
import { expiryOf, LeaderLease, usualExpiryMs } from '../wire/ledger.js';
import type { KeyValue } from './key-value.js';
import type { Link } from './link.js';

/** The lease's key in the ledger. */
export const leaderKey = 'leader';

/** The right to train. Disposing of it releases the lease at once. */
export interface Leadership extends AsyncDisposable {
  /** Aborts when another learner leads. */
  readonly signal: AbortSignal;
  /**
   * Renews the lease now. A learner that was suspended may not know yet that it lost the lease.
   *
   * @throws {Error} if another learner leads.
   */
  confirm(): Promise<void>;
}

export interface LeaseTiming {
  readonly renewEveryMs: number;
  /** A lease that was not renewed for this long is taken over. */
  readonly expiresMs: number;
}

const defaultTiming: LeaseTiming = { renewEveryMs: 2_500, expiresMs: usualExpiryMs };

/**
 * Acquires the lease as soon as it is free, belongs to this holder, or has expired. It expires if it is not renewed
 * for `expiresMs`, as the lease or as `timing` has it, whichever is longer. Only this process's clock measures that
 * time: clocks of different machines are never compared.
 *
 * A leader that cannot reach NATS stays leader until it learns that another one leads. Meanwhile it can
 * neither acknowledge nor publish nor write a checkpoint, so it only risks its own work, while giving up
 * would lose that work at each server restart.
 */
export async function acquireLeadership(
  link: Link,
  bucket: KeyValue,
  holder: string,
  signal: AbortSignal,
  timing: LeaseTiming = defaultTiming,
): Promise<Leadership> {
  const pauseMs = Math.min(timing.renewEveryMs, 1_000);
  let watched: { revision: number; sinceMs: number } | undefined;
  let polledAt = performance.now();
  let loggedAt = -Infinity;
  for (;;) {
    signal.throwIfAborted();
    const entry = await bucket.get(LeaderLease, leaderKey);
    const now = performance.now();
    // The server was unreachable, so the leader could not renew, or this process was suspended.
    const wasAway = now - polledAt > pauseMs + timing.renewEveryMs;
    polledAt = now;
    if (entry !== undefined && (watched?.revision !== entry.revision || wasAway)) {
      watched = { revision: entry.revision, sinceMs: now };
    }
    const expiresMs = Math.max(timing.expiresMs, entry === undefined ? 0 : expiryOf(entry.value));
    const isExpired = watched !== undefined && now - watched.sinceMs >= expiresMs;
    if (entry === undefined || entry.value.holder === holder || isExpired) {
      const lease = leaseOf(holder, timing);
      const revision = await bucket.compareAndSet(LeaderLease, leaderKey, lease, entry?.revision);
      if (revision !== undefined) {
        link.log.info({ holder }, 'leader lease acquired');
        return hold(link, bucket, holder, revision, timing);
      }
    } else if (now - loggedAt > 10_000) {
      loggedAt = now;
      link.log.warn(
        { leader: entry.value.holder, run: link.names.run },
        'waiting: another learner leads this run',
      );
    }
    await sleep(pauseMs, undefined, { signal });
  }
}

function leaseOf(holder: string, { expiresMs }: LeaseTiming): LeaderLease {
  const isUsual = expiresMs === usualExpiryMs; // then readers of earlier versions can read it too
  return { v: 1, holder, renewedAt: Date.now(), ...(!isUsual && { expiresMs }) };
}

function hold(
  link: Link,
  bucket: KeyValue,
  holder: string,
  acquired: number,
  timing: LeaseTiming,
): Leadership {
  const lost = new AbortController();
  const released = new AbortController();
  let revision = acquired;
  let lastRenewal: Promise<unknown> = Promise.resolve();
  let next: Promise<void> | undefined; // a renewal that has not begun
  const isReleased = () => released.signal.aborted;
  const renewing = keepRenewing();

  async function renew(): Promise<void> {
    if (lost.signal.aborted) return;
    const lease = leaseOf(holder, timing);
    const renewed = await bucket.compareAndSet(LeaderLease, leaderKey, lease, revision);
    if (renewed === undefined) {
      link.log.error({ holder }, 'leader lease lost to another learner');
      lost.abort(new Error(`another learner leads run ${link.names.run} now`));
    } else revision = renewed;
  }

  /**
   * Renews sequentially: each renewal names the revision of the previous one. Calls share a renewal that begins after
   * all of them.
   */
  function renewInTurn(): Promise<void> {
    next ??= lastRenewal.then(() => {
      next = undefined;
      return renew();
    });
    lastRenewal = next.catch(() => undefined);
    return next;
  }

  async function keepRenewing(): Promise<void> {
    while (!isReleased() && !lost.signal.aborted) {
      try {
        await sleep(timing.renewEveryMs, undefined, { signal: released.signal, ref: false });
        await renewInTurn();
      } catch (caught) {
        if (isReleased()) return;
        if (link.signal.aborted || link.connection.isClosed()) {
          lost.abort(caught); // this process is ending
          return;
        }
        link.log.warn({ holder, reason: errorText(caught) }, 'leader lease not renewed');
      }
    }
  }

  return {
    signal: lost.signal,
    async confirm() {
      await renewInTurn();
      lost.signal.throwIfAborted();
    },
    async [Symbol.asyncDispose]() {
      released.abort();
      // Bounded: an unreachable server would block this, and the lease expires anyway.
      await Promise.race([release(), sleep(2_000, undefined, { ref: false })]);
    },
  };

  async function release(): Promise<void> {
    try {
      await renewing;
      if (lost.signal.aborted || link.connection.isClosed()) return;
      const lease = await bucket.get(LeaderLease, leaderKey);
      // A standby may take over between the two calls; its lease must stay.
      if (lease?.revision === revision) await bucket.delete(leaderKey, revision);
    } catch (caught) {
      link.log.warn({ holder, reason: errorText(caught) }, 'leader lease not released');
    }
  }
}
