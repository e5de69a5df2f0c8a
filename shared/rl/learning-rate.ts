import { z } from 'zod';

/** The learning rate schedule of a run. */
export const Schedule = z.strictObject({
  kind: z.enum(['constant', 'linear', 'cosine']),
  warmupSteps: z.int().nonnegative(), // linear steps up to the peak; 0: no warm-up
  finalShare: z.number().min(0).max(1), // share of the peak at the end; unused by constant
});
export type Schedule = z.infer<typeof Schedule>;

/**
 * The learning rate of a step's optimizer steps: the peak times the warm-up factor times the decay
 * factor. The warm-up depends on steps; the decay depends on progress, so that it also fits a run with
 * a time limit.
 *
 * @param step counts from 1, over all sessions of the run.
 * @param progress of the run, 0 to 1.
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

/** The decay curve: 1 at the start, 0 at the end. */
const shareLeft: Record<Schedule['kind'], (progress: number) => number> = {
  constant: () => 1,
  linear: (progress) => 1 - progress,
  cosine: (progress) => 0.5 * (1 + Math.cos(Math.PI * progress)),
};

/** The progress at the start of this session of a run, and the limits of the session. */
export interface RunProgress {
  readonly progressBefore: number; // 0 to 1, from the checkpoint
  readonly stepBefore: number;
  readonly maxSteps: number; // of the run; Infinity: no such limit
  readonly maxSeconds: number; // of this session; Infinity: no such limit
}

/**
 * The progress of the run. A session goes linearly from the checkpoint's progress to 1 at its own end:
 * by steps, or by time if the run has no last step; with both limits, by the one nearer its end. So a
 * resumed run continues at its learning rate, even with another limit than before; with the same
 * `maxSteps`, progress is step / maxSteps in every session.
 *
 * @param step steps done by the run.
 * @param seconds of training in this session.
 * @returns 0 to 1; `progressBefore` in a run without limits.
 */
export function progressAt(runProgress: RunProgress, step: number, seconds: number): number {
  const { progressBefore, stepBefore, maxSteps, maxSeconds } = runProgress;
  const bySteps = (step - stepBefore) / Math.max(1, maxSteps - stepBefore);
  const byTime = seconds / Math.max(Number.EPSILON, maxSeconds);
  const done = Math.min(1, Math.max(0, bySteps, byTime));
  return progressBefore + (1 - progressBefore) * done;
}
