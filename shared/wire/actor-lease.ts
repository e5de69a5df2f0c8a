import { z } from 'zod';

const seconds = z.number().nonnegative();

/** What an actor says of itself every few seconds: that it lives, what it uses, and how it fares. */
export const ActorLease = z.strictObject({
  v: z.literal(1),
  actor: z.string().min(1).max(128),
  version: z.int().nonnegative(), // the policy version that it samples with now
  sampler: z.enum(['onnx', 'tinker']),
  groups: z.int().nonnegative(), // sampled since it started
  inFlight: z.int().nonnegative(), // groups that it samples at the moment
  limit: z.int().positive(), // groups that it can sample at once
  idleSeconds: z.strictObject({ ticket: seconds, policy: seconds, publish: seconds }), // since it started
  firstToken: z // of the newest version that it has drawn with
    .strictObject({ version: z.int().nonnegative(), seconds }) // since the publication
    .optional(), // none that was published since it started
  lastSeenAt: z.number(), // ms since the epoch
});
export type ActorLease = z.infer<typeof ActorLease>;
