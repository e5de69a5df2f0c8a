import { z } from 'zod';
import { Schedule } from '../rl/learning-rate.js';
import { LossName } from '../rl/losses.js';
import { TaskSpec } from '../tasks/registry.js';
import { Correction, ExtraTerms } from '../rl/objective.js';
import { adam, advantages, batching, fieldsOf, sampling } from './hyperparameters.js';
import { RunName } from '../wire/run-name.js';

/** The examples that a run trains on, and how many of them a step takes. */
const Supervised = z.strictObject({
  data: z.string().min(1), // solver, or a file
  digest: z.string().min(1), // of the problems or of the file's tokens
  heldOut: z.int().nonnegative(), // examples that measure the loss
  batch: z.discriminatedUnion('by', [
    z.strictObject({ by: z.literal('examples'), size: z.int().positive() }),
    z.strictObject({ by: z.literal('tokens'), size: z.int().positive() }),
  ]),
});

/** The saved weights that a run started from. */
const StartingWeights = z.strictObject({
  path: z.string().startsWith('tinker://'),
  run: z.string().min(1).optional(), // that made them, as RUN@STEP; unknown where only the path was given
});

/** The configuration of a run, written once by the learner and read by all other services. */
export const RunConfig = z.strictObject({
  v: z.literal(2),
  run: RunName,
  seed: z.int().nonnegative(),
  model: z.strictObject({
    name: z.string().min(1), // the name on the backend
    digest: z.string().min(1), // of config, weights and tokenizer; actors must have the same
  }),
  task: TaskSpec,
  datasetDigest: z.string().min(1), // of the problems; all services must have the same
  sampling: z.strictObject(fieldsOf(sampling)),
  ...fieldsOf(batching),
  curriculum: z.literal('signal').optional(), // else difficulties come as the data has them
  isBoundAdaptive: z.literal(true).optional(), // maxStepsOffPolicy is then the limit of the bound
  trainOn: z.enum(['rollouts', 'examples']).default('rollouts'), // older runs lack it
  supervised: Supervised.optional(), // of a run that trains on examples
  from: StartingWeights.optional(), // else the base model
  lora: z.strictObject({ rank: z.int().positive(), seed: z.int().nonnegative() }),
  loss: z.strictObject({
    name: LossName,
    config: z.record(z.string(), z.number()), // thresholds and beta, always explicit
  }),
  correction: Correction,
  ...fieldsOf(advantages),
  maxrlUntil: z.number().gt(0).lt(1).optional(), // progress at which maxrl gives way to mean_centred
  extraTerms: ExtraTerms,
  adam: z.strictObject(fieldsOf(adam)),
  schedule: Schedule,
});
export type RunConfig = z.infer<typeof RunConfig>;
