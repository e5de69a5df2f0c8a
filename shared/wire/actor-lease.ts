import { z } from 'zod';

/** What an actor says of itself every few seconds: that it lives, and which versions it still uses. */
export const ActorLease = z.strictObject({
  v: z.literal(1),
  actor: z.string().min(1).max(128),
  version: z.int().nonnegative(), // the policy version that it samples with now
  sampler: z.enum(['onnx', 'tinker']),
  groups: z.int().nonnegative(), // sampled since it started
  lastSeenAt: z.number(), // ms since the epoch
});
export type ActorLease = z.infer<typeof ActorLease>;
