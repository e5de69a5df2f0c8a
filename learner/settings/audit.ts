import { z } from 'zod';
import { number } from '../../shared/service/config-fields.js';
import type { AuditLimits } from '../../shared/rl/logprob-audit.js';

/** How the learner checks what actors say of their own tokens. */
export const Audit = z.object({
  auditShare: number
    .min(0)
    .max(1)
    .default(1)
    .describe('share of the groups whose logprobs are compared with our own.'),
  auditNoise: number
    .positive()
    .default(0.05)
    .describe('difference that proves nothing, in nats a token; above it the other actors count.'),
});
export type Audit = z.infer<typeof Audit>;

export function auditLimits({ auditNoise: noise }: Audit): AuditLimits {
  return {
    ...{ window: 16, minGroups: 4, noise, factor: 5 },
    // Beyond half a nat no server's arithmetic is to blame, so it holds without others, too.
    alone: Math.max(0.5, noise),
    // One false alarm in 10⁹ groups, or steps.
    proof: Math.log(1e9),
    maxRefused: 3,
  };
}
