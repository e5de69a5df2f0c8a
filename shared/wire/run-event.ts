import { z } from 'zod';

const eventBase = { v: z.literal(1), at: z.number() }; // ms since the epoch

/** How well one policy version does on held-out problems. Rates are shares, 0 to 1. */
export const EvalResult = z.strictObject({
  version: z.int().nonnegative(),
  problems: z.int().positive(),
  sampled: z.number().min(0).max(1), // exact-solve rate at the training temperature
  greedy: z.number().min(0).max(1), // exact-solve rate of the most probable answer
});
export type EvalResult = z.infer<typeof EvalResult>;

/** The run's history: dashboards, reports and metrics.jsonl are views of it. */
export const RunEvent = z.discriminatedUnion('kind', [
  z.strictObject({
    ...eventBase,
    kind: z.literal('step'),
    step: z.int().positive(),
    version: z.int().nonnegative(),
    metrics: z.record(z.string(), z.number()),
  }),
  z.strictObject({ ...eventBase, kind: z.literal('eval'), result: EvalResult }),
  z.strictObject({ ...eventBase, kind: z.literal('version'), version: z.int().nonnegative() }),
  z.strictObject({
    ...eventBase,
    kind: z.literal('end'),
    summary: z.record(z.string(), z.unknown()),
  }),
]);
export type RunEvent = z.infer<typeof RunEvent>;
