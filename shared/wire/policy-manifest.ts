import { z } from 'zod';
import { Canary } from './canary.js';

/** One published policy version: where its weights are and how to sample with it. */
export const PolicyManifest = z.strictObject({
  v: z.literal(1),
  version: z.int().nonnegative(), // 0 is the base policy; each step makes the next
  samplerPath: z.string().startsWith('tinker://'),
  samplingSessionId: z.string().min(1).optional(), // shared by all actors that sample on the backend
  adapter: z
    .strictObject({
      object: z.string().min(1), // in the run's object store; a PEFT adapter_model.safetensors
      sha256: z.string().regex(/^[0-9a-f]{64}$/),
      bytes: z.int().positive(),
      rank: z.int().positive(),
      alpha: z.number().positive(),
    })
    .optional(), // absent if the backend does not export weights
  canary: Canary.optional(), // to be reproduced before sampling; absent: the trainer could not compute it
  smallestUsefulVersion: z.int().nonnegative(), // older rollouts can no longer be trained on
  consumedBelow: z.int().nonnegative().optional(), // training tickets of lower orders have ended
  quarantined: z.array(z.string().min(1).max(128)).optional(), // actors whose groups are refused
  publishedAt: z.number(), // ms since the epoch
});
export type PolicyManifest = z.output<typeof PolicyManifest>;
