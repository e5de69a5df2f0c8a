import { z } from 'zod';
import { AdamParams } from '../rl/adam-params.js';
import { AdvantageKind, Normalization, ZeroVariance } from '../rl/objective.js';

/**
 * A number or choice of the run's configuration that a user sets under the same name. It is declared
 * here once: `fieldsOf` makes the configuration's field of it, `settingsOf` the learner's setting with its
 * flag, default and help, and `valuesOf` takes its value from one to the other.
 */
export interface Hyperparameter<Schema extends z.ZodType = z.ZodType> {
  readonly schema: Schema;
  readonly fallback: z.output<Schema>;
  readonly help: string;
}

type Table = Readonly<Record<string, Hyperparameter>>;
type FieldsOf<T extends Table> = { [K in keyof T]: T[K]['schema'] };
type SettingsOf<T extends Table> = { [K in keyof T]: z.ZodDefault<T[K]['schema']> };
type ValuesOf<T extends Table> = { [K in keyof T]: z.output<T[K]['schema']> };

export const sampling = {
  temperature: hyperparameter(z.number().positive(), 1, 'of sampling, and of the loss.'),
  maxTokens: hyperparameter(z.int().positive(), 20, 'longest answer.'),
};

export const batching = {
  groupSize: hyperparameter(z.int().min(2), 16, 'rollouts of one prompt.'),
  replayShare: hyperparameter(
    z.number().min(0).lt(1),
    0,
    'share of groups for problems that were tried before, preferring those that are likely to be ' +
      'answered both rightly and wrongly; the others go through all problems in turn.',
  ),
  groupsPerBatch: hyperparameter(
    z.int().positive(),
    64,
    'groups of one step, and so of a version.',
  ),
  numSubsteps: hyperparameter(
    z.int().positive(),
    1,
    'optimizer steps of a batch, each on an equal part of it.',
  ),
  numMinibatches: hyperparameter(
    z.int().positive(),
    4,
    'equal parts of a substep, each sent to the backend as soon as it is full.',
  ),
  maxStepsOffPolicy: hyperparameter(
    z.int().min(0),
    2,
    'how many versions old the data of a step may be; 0: synchronous.',
  ),
  sampleLag: hyperparameter(
    z.int().min(0),
    0,
    'hold sampling back by N versions, to study what stale data does; --max-steps-off-policy allows it.',
  ),
  windowPolicy: hyperparameter(
    z.enum(['wait', 'drop']),
    'wait',
    'for a group that must be trained now or never; drop: train others, lose it.',
  ),
};

export const advantages = {
  advantage: hyperparameter(
    AdvantageKind,
    'mean_centred',
    'how a rollout is compared with its group; batch_std divides by the deviation over the batch, which ' +
      'must be complete before it is sent.',
  ),
  normalization: hyperparameter(
    Normalization,
    'none',
    'how the sum over tokens is weighted: none, or a mean over tokens, over rollouts, over groups, or over ' +
      'rollouts by the longest answer (constant).',
  ),
  zeroVariance: hyperparameter(
    ZeroVariance,
    'refill',
    'groups whose rewards are all equal: skipped and replaced by one more, or trained on all the same.',
  ),
};

/** The settings of AdamW. Of `learningRate` this is the peak. */
export const adam = {
  learningRate: hyperparameter(
    AdamParams.shape.learningRate,
    1e-3,
    'of AdamW; of a schedule, its peak.',
  ),
  beta1: hyperparameter(AdamParams.shape.beta1, 0.9, 'of AdamW.'),
  beta2: hyperparameter(AdamParams.shape.beta2, 0.95, 'of AdamW.'),
  eps: hyperparameter(AdamParams.shape.eps, 1e-12, 'of AdamW.'),
  weightDecay: hyperparameter(AdamParams.shape.weightDecay, 0, 'of AdamW, decoupled.'),
  gradClipNorm: hyperparameter(
    AdamParams.shape.gradClipNorm,
    0,
    'largest global gradient norm; 0: no clipping.',
  ),
};

/** The fields of a message or configuration. */
export function fieldsOf<T extends Table>(table: T): FieldsOf<T> {
  return mapped(table, ({ schema }) => schema) as FieldsOf<T>;
}

/** The settings, with default and help; a number may be given as text, as flags and environment do. */
export function settingsOf<T extends Table>(table: T): SettingsOf<T> {
  const setting = ({ schema, fallback, help }: Hyperparameter) => {
    const fromText =
      schema instanceof z.ZodNumber ? schema.clone({ ...schema.def, coerce: true }) : schema;
    return fromText.default(fallback as never).describe(help);
  };
  return mapped(table, setting) as SettingsOf<T>;
}

/** The values of the table's hyperparameters among all settings. */
export function valuesOf<T extends Table>(table: T, settings: ValuesOf<T>): ValuesOf<T> {
  const pairs = Object.keys(table).map((key) => [key, settings[key]]);
  return Object.fromEntries(pairs) as ValuesOf<T>;
}

function hyperparameter<Schema extends z.ZodType>(
  schema: Schema,
  fallback: z.output<Schema>,
  help: string,
): Hyperparameter<Schema> {
  return { schema, fallback, help };
}

function mapped(table: Table, of: (hyperparameter: Hyperparameter) => z.ZodType) {
  return Object.fromEntries(Object.entries(table).map(([key, entry]) => [key, of(entry)]));
}
