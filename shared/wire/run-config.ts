import { z } from 'zod';
import { TaskSpec } from '../tasks/registry.js';
import { AdvantageKind, Correction, ExtraTerms, Normalization, ZeroVariance } from './objective.js';

/** A run's name: part of subjects, buckets, file names and URLs, so letters, digits, - and _ only. */
export const RunName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$/, 'expected 1 to 48 letters, digits, - or _');

export const LossName = z.enum(['importance_sampling', 'ppo', 'cispo', 'dro', 'cross_entropy']);
export type LossName = z.infer<typeof LossName>;

/** The settings of AdamW, always all of them: servers differ in their defaults. */
export const AdamParams = z.strictObject({
  learningRate: z.number().positive(),
  beta1: z.number().min(0).max(1),
  beta2: z.number().min(0).max(1),
  eps: z.number().positive(),
  weightDecay: z.number().nonnegative(), // decoupled
  gradClipNorm: z.number().nonnegative(), // 0: no clipping
});
export type AdamParams = z.infer<typeof AdamParams>;

/** How the learning rate goes over a run. */
export const Schedule = z.strictObject({
  kind: z.enum(['constant', 'linear', 'cosine']),
  warmupSteps: z.int().nonnegative(), // until the peak is reached, in equal parts; 0: from the start
  finalShare: z.number().min(0).max(1), // what is left of the peak at the end; constant has no end
});
export type Schedule = z.infer<typeof Schedule>;

/** What to train: written once by the learner, read by everyone else, so that they cannot disagree. */
export const RunConfig = z.strictObject({
  v: z.literal(2),
  run: RunName,
  seed: z.int().nonnegative(),
  model: z.strictObject({
    name: z.string().min(1), // as the backend calls it
    digest: z.string().min(1), // of its config, weights and tokenizer: actors must hold the same
  }),
  task: TaskSpec,
  datasetDigest: z.string().min(1), // of the problems themselves: everybody must hold the same
  sampling: z.strictObject({
    temperature: z.number().positive(),
    maxTokens: z.int().positive(),
  }),
  groupSize: z.int().min(2),
  replayShare: z.number().min(0).lt(1), // of tickets for problems that were tried; 0: epochs alone
  groupsPerBatch: z.int().positive(), // of one step, which makes one version
  numSubsteps: z.int().positive(), // optimizer steps of a batch
  numMinibatches: z.int().positive(), // of a substep
  maxStepsOffPolicy: z.int().nonnegative(),
  sampleLag: z.int().nonnegative(), // versions that sampling is held back
  windowPolicy: z.enum(['wait', 'drop']), // for a group that must be trained now or never
  lora: z.strictObject({ rank: z.int().positive(), seed: z.int().nonnegative() }),
  loss: z.strictObject({
    name: LossName,
    config: z.record(z.string(), z.number()), // thresholds and beta, always explicit
  }),
  correction: Correction,
  advantage: AdvantageKind,
  normalization: Normalization,
  extraTerms: ExtraTerms,
  zeroVariance: ZeroVariance,
  adam: AdamParams, // with the learning rate at its peak
  schedule: Schedule,
});
export type RunConfig = z.infer<typeof RunConfig>;
