import { z } from 'zod';
import { AdamParams } from '../rl/adam-params.js';
import { Schedule } from '../rl/learning-rate.js';
import { LossName } from '../rl/losses.js';
import { TaskSpec } from '../tasks/registry.js';
import {
  AdvantageKind,
  Correction,
  ExtraTerms,
  Normalization,
  ZeroVariance,
} from '../rl/objective.js';
import { RunName } from '../wire/run-name.js';

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
