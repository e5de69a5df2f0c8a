import { z } from 'zod';

/** How the learning rate goes over a run. */
export const Schedule = z.strictObject({
  kind: z.enum(['constant', 'linear', 'cosine']),
  warmupSteps: z.int().nonnegative(), // until the peak is reached, in equal parts; 0: from the start
  finalShare: z.number().min(0).max(1), // what is left of the peak at the end; constant has no end
});
export type Schedule = z.infer<typeof Schedule>;

/**
 * The learning rate of a step's optimizer steps: the peak, times how far the warm-up is, times what the
 * decay leaves of it. The warm-up goes by steps; the decay goes by progress, so that it fits a run
 * that ends by the clock as well.
 *
 * @param step counts from 1, over all lives of the run.
 * @param progress how far the run is, 0 to 1.
 */
export function learningRateAt(
  peak: number,
  schedule: Schedule,
  step: number,
  progress: number,
): number {
  const { kind, warmupSteps, finalShare } = schedule;
  const warm = warmupSteps === 0 ? 1 : Math.min(1, step / warmupSteps);
  const decayed = finalShare + (1 - finalShare) * shareLeft[kind](progress);
  return peak * warm * (kind === 'constant' ? 1 : decayed);
}

/** From 1 at the start to 0 at the end. */
const shareLeft: Record<Schedule['kind'], (progress: number) => number> = {
  constant: () => 1,
  linear: (progress) => 1 - progress,
  cosine: (progress) => 0.5 * (1 + Math.cos(Math.PI * progress)),
};

/** How far a run was when this life of it began, and what this life has to go. */
export interface RunProgress {
  readonly progressBefore: number; // 0 to 1, as its checkpoint says
  readonly stepBefore: number;
  readonly maxSteps: number; // of the run; Infinity: no such limit
  readonly maxSeconds: number; // of this life; Infinity: no such limit
}

/**
 * How far the run is: this life goes from where the checkpoint left off to 1 at its own end, in equal
 * steps, or by time when the run has no last step; with both limits by whichever is nearer its end.
 * So a resumed run goes on at the learning rate that it had, also with another limit than before;
 * with the same `maxSteps`, progress is step / maxSteps in every life.
 *
 * @param step steps that the run has made.
 * @param seconds of training in this life.
 * @returns 0 to 1; `progressBefore` in a run without limits.
 */
export function progressAt(runProgress: RunProgress, step: number, seconds: number): number {
  const { progressBefore, stepBefore, maxSteps, maxSeconds } = runProgress;
  const bySteps = (step - stepBefore) / Math.max(1, maxSteps - stepBefore);
  const byTime = seconds / Math.max(Number.EPSILON, maxSeconds);
  const done = Math.min(1, Math.max(0, bySteps, byTime));
  return progressBefore + (1 - progressBefore) * done;
}
