import type { Backlog } from '../../../shared/broker/backlog.js';
import type { ActorLease } from '../../../shared/wire/actor-lease.js';
import type { LeaderLease } from '../../../shared/wire/ledger.js';
import type { PolicyManifest } from '../../../shared/wire/policy-manifest.js';

/** What was found when the run was looked at. */
export interface Look {
  readonly at: number; // ms since the epoch
  readonly backlog: Backlog;
  readonly leases: readonly ActorLease[];
  readonly manifest: PolicyManifest | undefined;
  readonly leader: LeaderLease | undefined;
}
