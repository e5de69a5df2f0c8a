import { z } from 'zod';

const index = z.int().nonnegative(); // of a problem to train on

/**
 * What difficulty-aware sampling needs to go on exactly: the problems of tickets that are decided, and
 * what the others will be decided by.
 */
export const CurriculumState = z.strictObject({
  decidedTo: z.int().nonnegative(), // tickets of lower orders have their problems
  decided: z.array(z.tuple([z.int().nonnegative(), index])), // [order, problem], without the consumed
  tried: z.array(z.tuple([index, z.number().nonnegative(), z.number().nonnegative()])),
});
export type CurriculumState = z.infer<typeof CurriculumState>;
