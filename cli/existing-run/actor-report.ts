import { type ActorLease, actorLivenessMs } from '../../shared/wire/actor-lease.js';
import type { PolicyManifest } from '../../shared/wire/policy-manifest.js';

/** An actor as its lease and the newest policy show it; unknown values are null. */
export interface ActorReport {
  readonly actor: string;
  readonly isLive: boolean;
  readonly isQuarantined: boolean;
  readonly refused: number | null; // the newest version, if it does not reproduce its canary
  readonly version: number | null; // null: it has refused every one, or waits for an adapter
  readonly behind: number | null; // versions between its own and the newest
  readonly groups: number; // since it started
  readonly inFlight: number; // groups
  readonly limit: number; // groups
  readonly seenSecondsAgo: number;
}

/** @param at when the lease and the policy were read, in ms since the epoch, by the clock that `lastSeenAt` is from. */
export function actorReport(
  lease: ActorLease,
  policy: PolicyManifest | undefined,
  at: number,
): ActorReport {
  const { actor, version, groups, inFlight, limit, refused } = lease;
  return {
    actor,
    isLive: isLive(lease, at),
    isQuarantined: policy?.quarantined?.includes(actor) ?? false,
    refused: refused?.version ?? null,
    version: version ?? null,
    behind:
      policy === undefined || version === undefined ? null : Math.max(0, policy.version - version),
    groups,
    inFlight,
    limit,
    seenSecondsAgo: Math.max(0, (at - lease.lastSeenAt) / 1_000),
  };
}

/** A server of vLLM or SGLang, as one actor sees it; unknown values are null. */
export interface EngineReport {
  readonly actor: string;
  readonly url: string;
  readonly release: string | null;
  readonly trouble: string | null; // why the actor does not sample with it
  readonly running: number | null; // sequences
  readonly waiting: number | null; // sequences
  readonly kvUsage: number | null; // share of its cache of keys and values
  readonly adapters: number; // versions that have reproduced their canary there
  readonly slots: number; // versions that the actor may have loaded there
}

/** The servers of the actors that still report. */
export function engineReports(leases: readonly ActorLease[], at: number): EngineReport[] {
  return leases
    .filter((lease) => isLive(lease, at))
    .flatMap(({ actor, engines = [] }) =>
      engines.map(({ url, release, trouble, running, waiting, kvUsage, adapters, slots }) => ({
        ...{ actor, url, release: release ?? null, trouble: trouble ?? null },
        ...{ running: running ?? null, waiting: waiting ?? null, kvUsage: kvUsage ?? null },
        ...{ adapters, slots },
      })),
    );
}

/** Whether the actor has renewed its lease lately. */
export function isLive({ lastSeenAt }: ActorLease, at: number): boolean {
  return at - lastSeenAt <= actorLivenessMs;
}
