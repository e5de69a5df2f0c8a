import { z } from 'zod';

const seconds = z.number().nonnegative();

/** Where an actor samples: in its own process, on the run's backend, or on an engine of its own. */
export const SamplerKind = z.enum(['onnx', 'tinker', 'vllm', 'sglang']);
export type SamplerKind = z.infer<typeof SamplerKind>;

/** The lease that an actor renews every few seconds: the version that it uses and its current load. */
export const ActorLease = z.strictObject({
  v: z.literal(1),
  actor: z.string().min(1).max(128),
  version: z.int().nonnegative().optional(), // the policy version that it samples with; absent: it has refused every one
  sampler: SamplerKind,
  groups: z.int().nonnegative(), // groups sampled since it started
  inFlight: z.int().nonnegative(), // groups being sampled now
  limit: z.int().positive(), // groups that it can sample at once
  idleSeconds: z.strictObject({ ticket: seconds, policy: seconds, publish: seconds }), // since it started
  firstToken: z // by the newest version that has drawn a token
    .strictObject({ version: z.int().nonnegative(), seconds }) // since the publication
    .optional(), // absent: no version published since it started
  abandoned: z.record(z.string(), z.int().nonnegative()).optional(), // tokens given up since it started, by reason; absent: none
  refused: z // the newest version, whose canary it does not reproduce
    .strictObject({
      version: z.int().nonnegative(),
      attempts: z.int().positive(), // so far
      difference: z.number().nonnegative(), // the largest, in nats
      band: z.number().positive(), // of the largest
      mean: z.number().nonnegative(), // difference over all tokens but the largest quarter, in nats
      meanBand: z.number().positive(), // of the mean
      place: z.int().nonnegative(), // index of the token in the canary
    })
    .optional(), // absent: none
  lastSeenAt: z.number(), // ms since the epoch
});
export type ActorLease = z.infer<typeof ActorLease>;
