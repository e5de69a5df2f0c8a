import type { z } from 'zod';
import { ActorLease } from '../../shared/wire/actor-lease.js';
import { Checkpoint, LeaderLease } from '../../shared/wire/ledger.js';
import { PolicyManifest } from '../../shared/wire/policy-manifest.js';
import { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { RunConfig } from '../../shared/run/run-config.js';
import { RunEvent } from '../../shared/wire/run-event.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import {
  actorLease,
  checkpoint,
  evalResult,
  rolloutGroup,
  runConfig,
  scoredGroup,
  ticket,
} from './messages.js';

export const manifest: PolicyManifest = {
  v: 1,
  version: 3,
  samplerPath: 'tinker://run/sampler/3',
  samplingSessionId: 's-1',
  adapter: { object: 'adapter-3', sha256: 'a'.repeat(64), bytes: 10, rank: 4, alpha: 8 },
  smallestUsefulVersion: 1,
  consumedBelow: 5,
  quarantined: ['actor-1'],
  publishedAt: 5,
};

const quarantine = { actor: 'actor-1', gap: 1, bound: 0.1, groups: 4, version: 2 };
const step = { step: 1, version: 1, metrics: { loss: 0.5 } };

/** One valid message of every kind that processes exchange. */
export const everyMessage: readonly { name: string; schema: z.ZodType; message: unknown }[] = [
  { name: 'ticket', schema: Ticket, message: ticket() },
  { name: 'pinned ticket', schema: Ticket, message: ticket({ split: 'eval', pinnedVersion: 2 }) },
  { name: 'rollout group', schema: RolloutGroup, message: rolloutGroup() },
  { name: 'scored group', schema: ScoredGroup, message: scoredGroup() },
  { name: 'checkpoint', schema: Checkpoint, message: checkpoint() },
  { name: 'leader lease', schema: LeaderLease, message: { v: 1, holder: 'a', renewedAt: 1 } },
  { name: 'policy manifest', schema: PolicyManifest, message: manifest },
  { name: 'actor lease', schema: ActorLease, message: actorLease() },
  { name: 'run configuration', schema: RunConfig, message: runConfig() },
  ...[
    { kind: 'step', ...step },
    { kind: 'eval', result: evalResult() },
    { kind: 'quarantine', ...quarantine },
    { kind: 'version', version: 3 },
    { kind: 'leader', holder: 'learner-0' },
    { kind: 'checkpoint', checkpoint: checkpoint({ serial: 2 }) },
    { kind: 'end', summary: { steps: 3 } },
  ].map((event) => ({
    name: `event of kind ${event.kind}`,
    schema: RunEvent,
    message: { v: 1, at: 1, ...event },
  })),
];
