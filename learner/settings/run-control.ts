import { z } from 'zod';
import type { DivergenceLimits } from '../../shared/rl/divergence.js';
import type { AuditLimits } from '../../shared/rl/logprob-audit.js';
import { type AddIssue, int, number } from '../../shared/service/config-fields.js';
import type { Task } from './training.js';

/** How long to train, and how much of it a crash may cost. */
export const Duration = z.object({
  maxSteps: int
    .positive()
    .optional()
    .describe('end after N steps, those before a resume included; a step trains one batch.'),
  maxMinutes: number
    .positive()
    .optional()
    .describe('end after N minutes of training; evaluations do not count, nor earlier processes.'),
  checkpointEverySteps: int
    .positive()
    .default(10)
    .describe('steps between checkpoints: what a crash of backend or learner can cost.'),
  keepEverySteps: int
    .min(0)
    .default(0)
    .describe(
      'keep the checkpoint of every N-th step for good, besides the two newest and the best; 0: only those.',
    ),
});
export type Duration = z.infer<typeof Duration>;

/** What is measured on held-out problems. */
export const Evaluation = z.object({
  evalProblems: int
    .min(0)
    .default(256)
    .describe('held-out problems to measure the policy on; 0: no evaluation.'),
  evalSamples: int
    .positive()
    .default(4)
    .describe('answers to each of them at the training temperature; one more is greedy.'),
  evalEveryVersions: int
    .min(0)
    .default(20)
    .describe(
      'the version of every N-th step is measured while training goes on; 0: only before and after.',
    ),
});
export type Evaluation = z.infer<typeof Evaluation>;

export function checkEvaluation(
  { evalProblems, testSize }: Evaluation & Task,
  addIssue: AddIssue<Evaluation>,
): void {
  if (evalProblems > testSize) {
    addIssue('evalProblems', `only --test-size ${testSize} problems are held out`);
  }
}

/** When to give up a run that has diverged; what is good is kept. */
export const Stops = z.object({
  stopKl: number
    .min(0)
    .default(1)
    .describe('give up when kl_sample_train_v2 stays above this, in nats a token; 0: never.'),
  stopRewardShare: number
    .min(0)
    .lt(1)
    .default(0.3)
    .describe('give up when the reward stays below this share of its best; 0: never.'),
  stopPatience: int
    .positive()
    .default(10)
    .describe('steps in a row that it must stay so; rewards are averaged over as many.'),
  stopZeroVariance: int
    .min(0)
    .default(1_000)
    .describe('give up when so many groups in a row are skipped for no variance; 0: never.'),
});
export type Stops = z.infer<typeof Stops>;

export function divergenceLimits(settings: Stops): DivergenceLimits {
  const { stopKl, stopRewardShare: minRewardShare, stopPatience: patience } = settings;
  return { maxKl: stopKl === 0 ? Infinity : stopKl, minRewardShare, patience };
}

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
