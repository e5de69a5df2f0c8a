import { z } from 'zod';

/** All settings of AdamW; none is optional, because servers differ in their defaults. */
export const AdamParams = z.strictObject({
  learningRate: z.number().positive(),
  beta1: z.number().min(0).lt(1),
  beta2: z.number().min(0).lt(1),
  eps: z.number().positive(),
  weightDecay: z.number().min(0), // decoupled
  gradClipNorm: z.number().min(0), // 0: no clipping
});
export type AdamParams = z.infer<typeof AdamParams>;
