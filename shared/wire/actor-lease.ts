import { z } from 'zod';

const seconds = z.number().nonnegative();

/** Where an actor samples: in its own process, on the run's backend, or on an engine of its own. */
export const SamplerKind = z.enum(['onnx', 'tinker', 'vllm', 'sglang']);
export type SamplerKind = z.infer<typeof SamplerKind>;

export function isEngine(sampler: SamplerKind | undefined): sampler is 'vllm' | 'sglang' {
  return sampler === 'vllm' || sampler === 'sglang';
}

const count = z.int().nonnegative();

/** A version whose canary is not reproduced, by an actor or by one of its servers. */
export const CanaryRefusal = z.strictObject({
  version: z.int().nonnegative(),
  attempts: z.int().positive(), // so far
  difference: z.number().nonnegative(), // the largest, in nats
  band: z.number().positive(), // of the largest
  mean: z.number().nonnegative(), // difference over all tokens but the largest quarter, in nats
  meanBand: z.number().positive(), // of the mean
  place: z.int().nonnegative(), // index of the token in the canary
  closerTo: z.int().nonnegative().optional(), // the earlier version that it is closer to
});
export type CanaryRefusal = z.infer<typeof CanaryRefusal>;

/** A server that an actor samples with, as the actor sees it; what the server does not say is absent. */
export const EngineLease = z.strictObject({
  url: z.string().max(512),
  release: z.string().max(64).optional(),
  trouble: z.string().max(512).optional(), // why it is not used; absent: it is
  refused: CanaryRefusal.optional(), // absent: it is used, or not used for another reason
  running: count.optional(), // sequences that it decodes now, of all its clients
  waiting: count.optional(), // sequences that wait for room in its batch
  kvUsage: z.number().min(0).max(1).optional(), // share of its cache of keys and values
  adapters: count, // versions that have reproduced their canary there
  slots: count, // versions that this actor may have loaded there
});
export type EngineLease = z.infer<typeof EngineLease>;

/** Why an actor has given up tokens that it drew. */
export const WasteReason = z.enum(['stale', 'duplicate', 'returned']);
export type WasteReason = z.infer<typeof WasteReason>;

/** Far more tokens than an actor draws in its life; sums over thousands of leases are still exact. */
const mostTokens = 2 ** 40;

/** The lease that an actor renews every few seconds: the oldest version that the actor still needs and its current load. */
export const ActorLease = z.strictObject({
  v: z.literal(1),
  actor: z.string().min(1).max(128),
  version: z.int().nonnegative().optional(), // the oldest policy version that the actor still needs; absent: it has refused every one, or waits for an adapter
  sampler: SamplerKind, // any but `tinker` needs the adapters of versions
  groups: z.int().nonnegative(), // groups sampled since it started
  inFlight: z.int().nonnegative(), // groups being sampled now
  limit: z.int().positive(), // groups that it can sample at once
  idleSeconds: z.strictObject({ ticket: seconds, policy: seconds, publish: seconds }), // since it started
  firstToken: z // by the newest version that has drawn a token
    .strictObject({ version: z.int().nonnegative(), seconds }) // since the publication
    .optional(), // absent: no version published since it started
  abandoned: z.partialRecord(WasteReason, count.max(mostTokens)).optional(), // tokens given up since it started; absent: none
  refused: CanaryRefusal.optional(), // the newest version, whose canary it reproduces nowhere, so that it does not sample; absent: none
  engines: z.array(EngineLease).max(64).optional(), // absent: it samples with no server that it watches
  lastSeenAt: z.number(), // ms since the epoch
});
export type ActorLease = z.infer<typeof ActorLease>;

/** How often an actor renews its lease. */
export const actorRenewalMs = 2_000;

/** An actor whose lease was not renewed for longer has ended or hangs. */
export const actorLivenessMs = 5 * actorRenewalMs;
