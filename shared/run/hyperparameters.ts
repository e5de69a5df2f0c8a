import { z } from 'zod';
import { AdamParams } from '../rl/adam-params.js';
import { AdvantageKind, Normalization, ZeroVariance } from '../rl/objective.js';

/**
 * A number or choice of the run's configuration that a user sets under the same name. Each is declared
 * once: `fieldsOf` derives the configuration's field from it, `settingsOf` the learner's setting with its
 * flag, default and help, and `valuesOf` copies its value from the setting to the field.
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
  temperature: hyperparameter(z.number().positive(), 1, 'temperature of sampling and of the loss.'),
  maxTokens: hyperparameter(z.int().positive(), 20, 'longest answer, in tokens.'),
};

export const batching = {
  groupSize: hyperparameter(z.int().min(2), 16, 'rollouts per prompt.'),
  replayShare: hyperparameter(
    z.number().min(0).lt(1),
    0,
    'share of groups for problems that were tried before, preferring those likely to get both right ' +
      'and wrong answers; the other groups go through all problems in turn.',
  ),
  groupsPerBatch: hyperparameter(
    z.int().positive(),
    64,
    'groups per step; each step publishes one policy version.',
  ),
  numSubsteps: hyperparameter(
    z.int().positive(),
    1,
    'optimizer steps per batch, each on an equal part of it.',
  ),
  numMinibatches: hyperparameter(
    z.int().positive(),
    4,
    'equal parts of each substep, each sent to the backend as soon as it is full.',
  ),
  maxStepsOffPolicy: hyperparameter(
    z.int().min(0),
    2,
    'how many versions old the data of a step may be; 0 trains synchronously.',
  ),
  sampleLag: hyperparameter(
    z.int().min(0),
    0,
    'delays sampling by N versions, to study the effect of stale data; at most --max-steps-off-policy.',
  ),
  windowPolicy: hyperparameter(
    z.enum(['wait', 'drop']),
    'wait',
    'what a step does about a slow group that would be too old for the next step: wait for it, or drop ' +
      'it and train on others.',
  ),
};

export const advantages = {
  advantage: hyperparameter(
    AdvantageKind,
    'mean_centred',
    'how a rollout is compared with its group; batch_std divides by the deviation over the batch, so ' +
      'the whole batch must arrive before any of it is sent.',
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
    'groups whose rewards are all equal: refill skips and replaces them, train keeps them in the batch.',
  ),
};

/** The settings of AdamW; `learningRate` is the peak of the schedule. */
export const adam = {
  learningRate: hyperparameter(
    AdamParams.shape.learningRate,
    1e-3,
    'AdamW learning rate; with --schedule, its peak.',
  ),
  beta1: hyperparameter(AdamParams.shape.beta1, 0.9, 'AdamW beta1.'),
  beta2: hyperparameter(AdamParams.shape.beta2, 0.95, 'AdamW beta2.'),
  eps: hyperparameter(AdamParams.shape.eps, 1e-12, 'AdamW epsilon.'),
  weightDecay: hyperparameter(AdamParams.shape.weightDecay, 0, 'AdamW weight decay, decoupled.'),
  gradClipNorm: hyperparameter(
    AdamParams.shape.gradClipNorm,
    0,
    'largest global gradient norm; 0 disables clipping.',
  ),
};

/** The fields that a message or configuration has for the table's hyperparameters. */
export function fieldsOf<T extends Table>(table: T): FieldsOf<T> {
  return mapped(table, ({ schema }) => schema) as FieldsOf<T>;
}

/** The settings, with default and help. Numbers may be given as text, since flags and environment variables are. */
export function settingsOf<T extends Table>(table: T): SettingsOf<T> {
  const setting = ({ schema, fallback, help }: Hyperparameter) => {
    const fromText =
      schema instanceof z.ZodNumber ? schema.clone({ ...schema.def, coerce: true }) : schema;
    return fromText.default(fallback as never).describe(help);
  };
  return mapped(table, setting) as SettingsOf<T>;
}

/** Picks the values of the table's hyperparameters from all settings. */
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
