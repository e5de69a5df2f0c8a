import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../shared/broker/broker.js';
import { UserError } from '../shared/base/errors.js';
import type { Logger } from '../shared/service/telemetry/logger.js';
import {
  type ActorLease,
  actorRenewalMs,
  type EngineLease,
  type WasteReason,
} from '../shared/wire/actor-lease.js';
import type { Activity } from './activity.js';
import type { PolicyFollower } from './policy-follower.js';
import type { Sampler } from './sampler/sampler.js';

/**
 * The lease of an actor as it is now.
 *
 * @param now ms since the epoch.
 * @returns undefined until the actor has loaded or refused a version, or waits for an adapter.
 */
export function leaseOf(
  {
    actor,
    sampler,
    policies,
    activity,
    groups,
    abandoned,
  }: {
    readonly actor: string;
    readonly sampler: Pick<Sampler, 'kind' | 'limit' | 'servers'>;
    readonly policies: Pick<PolicyFollower, 'oldestInUse' | 'firstToken' | 'refused'> &
      Partial<Pick<PolicyFollower, 'awaitsAdapter'>>;
    readonly activity: Pick<Activity, 'sampling' | 'idleSeconds'>;
    readonly groups: number; // sampled since it started
    readonly abandoned: Readonly<Partial<Record<WasteReason, number>>>; // tokens since it started
  },
  now: number,
): ActorLease | undefined {
  const { oldestInUse: version, firstToken, refused } = policies;
  const isKnown = version !== undefined || refused !== undefined;
  if (!isKnown && policies.awaitsAdapter !== true) return undefined;
  return {
    v: 1,
    actor,
    ...(version === undefined ? {} : { version }),
    sampler: sampler.kind,
    groups,
    inFlight: activity.sampling,
    limit: sampler.limit.now,
    idleSeconds: activity.idleSeconds,
    ...(firstToken === undefined ? {} : { firstToken }),
    ...(Object.keys(abandoned).length === 0 ? {} : { abandoned }),
    ...(refused === undefined ? {} : { refused }),
    ...(sampler.servers.length === 0 ? {} : { engines: shortened(sampler.servers) }),
    lastSeenAt: now,
  };
}

/** Characters of the reasons of all servers together: a lease has at most 16 KiB. */
const allTrouble = 4_000;

/** The servers of a lease, with the reasons of many cut so that they fit. */
function shortened(servers: readonly EngineLease[]): EngineLease[] {
  const longest = Math.floor(allTrouble / servers.length);
  return servers.map(({ trouble, ...server }) =>
    trouble === undefined ? server : { ...server, trouble: trouble.slice(0, longest) },
  );
}

/**
 * Renews this actor's lease every `actorRenewalMs`. The lease names the oldest version that the actor still needs,
 * so that the learner retires no version in use. Rejects once `signal` aborts.
 *
 * @param lease the current lease; undefined while the actor needs no version yet.
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
      log.warn({ err }, 'lease not renewed, retrying');
    }
    await sleep(actorRenewalMs, undefined, { signal });
  }
}
