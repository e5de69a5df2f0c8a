import { z } from 'zod';
import { UserError } from '../base/errors.js';
import type { ModelConfig } from '../model/model-config.js';
import { AdamParams } from '../rl/adam-params.js';
import { AdvantageKind, Normalization, ZeroVariance } from '../rl/objective.js';
import type { PromptTemplate } from '../tasks/prompt-template.js';
import { maxGroupSize } from '../wire/ticket.js';

/**
 * A number or choice of the run's configuration that a user sets under the same name. Each is declared
 * once: `fieldsOf` derives the configuration's field from it, `settingsOf` the learner's setting with its
 * flag, default and help, and `valuesOf` copies its value from the setting to the field.
 */
interface Hyperparameter<Schema extends z.ZodType = z.ZodType, Fallback = unknown> {
  readonly schema: Schema;
  readonly fallback: Fallback; // undefined: `fitToModel` chooses it
  readonly help: string;
}

type Table = Readonly<Record<string, Hyperparameter>>;
type FieldsOf<T extends Table> = { [K in keyof T]: T[K]['schema'] };
type SettingOf<H extends Hyperparameter> = H extends { readonly fallback: undefined }
  ? z.ZodOptional<H['schema']>
  : z.ZodDefault<H['schema']>;
type SettingsOf<T extends Table> = { [K in keyof T]: SettingOf<T[K]> };
type ValuesOf<T extends Table> = { [K in keyof T]: z.output<T[K]['schema']> };

export const sampling = {
  temperature: hyperparameter(z.number().positive(), 1, 'temperature of sampling and of the loss.'),
  maxTokens: hyperparameter(
    z.int().positive(),
    undefined,
    'longest answer, in tokens; by default 20 for --prompt-style compact, 256 for fewshot and 1024 for think.',
  ),
};

export const batching = {
  groupSize: hyperparameter(z.int().min(2).max(maxGroupSize), 16, 'rollouts per prompt.'),
  replayShare: hyperparameter(
    z.number().min(0).lt(1),
    0,
    'share of groups for problems that were tried before, preferring those likely to get both right ' +
      'and wrong answers; the other groups go through all problems in turn.',
  ),
  groupsPerBatch: hyperparameter(
    z.int().positive(),
    64,
    'groups per step; each step publishes one policy version. npm start uses 16 for the embedded model, and only then chooses ' +
      '--num-minibatches, --advantage and --eval-every-versions.',
  ),
  numSubsteps: hyperparameter(
    z.int().positive(),
    1,
    'optimizer steps per batch, each on an equal part of it.',
  ),
  numMinibatches: hyperparameter(
    z.int().positive(),
    4,
    'equal parts of each substep, each sent to the backend as soon as it is full. npm start uses 1 for the embedded model.',
  ),
  maxStepsOffPolicy: hyperparameter(
    z.int().min(0),
    2,
    'how many versions old the data of a step may be; 0 trains synchronously. With auto:N at most N: the age for which tickets are issued ' +
      'starts at 1, rises while ess_ratio is at least 0.95, and is halved below 0.9.',
  ),
  sampleLag: hyperparameter(
    z.int().min(0),
    0,
    'delays sampling by N versions, to study the effect of stale data; at most --max-steps-off-policy.',
  ),
  windowPolicy: hyperparameter(
    z.enum(['wait', 'drop', 'tokens']),
    'wait',
    'what a step does about a slow group that would be too old for the next step: wait for it, or drop ' +
      'it and train on others; with tokens the bound holds for each token: the group continues under newer versions, and its ' +
      'tokens beyond the bound are masked when it is trained on.',
  ),
};

const expectedBound = 'expected a whole number of at least 0, or auto:N with N of at least 1';

/** A bound on staleness as it is set: a number of versions, or `auto:` and the limit of a bound that adapts itself. */
export const OffPolicyBound = z.union(
  [
    z.coerce.number().pipe(z.int().min(0)),
    z.string().regex(/^auto:[1-9]\d*$/, { error: expectedBound }),
  ],
  { error: expectedBound },
);
export type OffPolicyBound = z.infer<typeof OffPolicyBound>;

/** @param bound as given; it may be the text of a number. */
export function offPolicyFields(bound: OffPolicyBound): {
  readonly maxStepsOffPolicy: number;
  readonly isBoundAdaptive?: true;
} {
  const isAdaptive = String(bound).startsWith('auto:');
  const maxStepsOffPolicy = Number(String(bound).replace('auto:', ''));
  return { maxStepsOffPolicy, ...(isAdaptive && { isBoundAdaptive: true }) };
}

export const advantages = {
  advantage: hyperparameter(
    AdvantageKind,
    'mean_centred',
    'how a rollout is compared with its group; maxrl divides by the mean of the absolute rewards, so a rare success weighs more; batch_std ' +
      'by the deviation over the batch, so the whole batch must arrive before any of it is sent.',
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
    undefined,
    'AdamW learning rate; with --schedule, its peak. By default it follows from the width of the model: 2e-3 for ' +
      'the embedded model, 5e-4 for a width of 256, 1e-4 from 576 on; with --data 4.4e-4 for 576, 1e-4 for 2560.',
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
  const settingOf = ({ schema, fallback, help }: Hyperparameter) => {
    const fromText =
      schema instanceof z.ZodNumber ? schema.clone({ ...schema.def, coerce: true }) : schema;
    const setting =
      fallback === undefined ? fromText.optional() : fromText.default(fallback as never);
    return setting.describe(help);
  };
  return mapped(table, settingOf) as SettingsOf<T>;
}

/** Picks the values of the table's hyperparameters from all settings. */
export function valuesOf<T extends Table>(table: T, settings: ValuesOf<T>): ValuesOf<T> {
  const pairs = Object.keys(table).map((key) => [key, settings[key]]);
  return Object.fromEntries(pairs) as ValuesOf<T>;
}

/** The hyperparameters whose defaults depend on the model and on how it is asked. */
export interface Fitted {
  readonly learningRate: number;
  readonly maxTokens: number;
}

/** The settings that `fitToModel` completes or compares with what it chose. */
export interface Fitting {
  readonly learningRate?: number | undefined;
  readonly maxTokens?: number | undefined;
  readonly data?: string | undefined; // trains on examples instead of sampled answers
  readonly lengthPenalty: number;
  readonly lengthFree: number; // tokens
}

/**
 * Completes the settings that have no fixed default.
 *
 * For examples the learning rate is inverse to the width of the model, from that of the embedded one on. Sampled
 * answers have far more noise in their gradient: there it falls with the square of the width to 1e-4 and stays at
 * that until the inverse is lower. Tried for the embedded model and SmolLM2-135M; for Qwen3-4B 1e-4 is where
 * TuFT's Countdown guide found the best reward. The longest answer leaves room for the answer alone, for some words before
 * it, or for reasoning.
 *
 * @throws {UserError} if no answer in the form that the prompt asks for fits into `maxTokens`, or none is long
 *   enough for the length penalty.
 */
export function fitToModel<Settings extends Fitting>(
  settings: Settings,
  { hiddenSize }: Pick<ModelConfig, 'hiddenSize'>,
  prompt: Pick<PromptTemplate, 'name' | 'chat' | 'answer'>,
): Settings & Fitted {
  const { usual, least } = answerTokens(prompt);
  const { maxTokens = usual } = settings;
  if (maxTokens < least) {
    throw new UserError(
      `--max-tokens ${maxTokens} cuts off every answer to a prompt of --prompt-style ${prompt.name}, whose ` +
        `shortest take about ${least}; give at least that, or remove it for ${usual}`,
    );
  }
  if (settings.lengthPenalty > 0 && settings.lengthFree >= maxTokens) {
    throw new UserError(
      `--length-free ${settings.lengthFree} must be below --max-tokens, which is ${maxTokens}`,
    );
  }
  const learningRate = settings.learningRate ?? usualRate(hiddenSize, settings.data !== undefined);
  return { ...settings, learningRate, maxTokens };
}

function usualRate(hiddenSize: number, isOfExamples: boolean): number {
  const share = 128 / Math.max(128, hiddenSize);
  const inverse = embeddedRate * share;
  const rate = isOfExamples ? inverse : Math.max(inverse * share, Math.min(1e-4, inverse));
  return Number(rate.toPrecision(2));
}

/** The learning rate of the embedded model, whose width is 128. */
export const embeddedRate = 2e-3;

/** `usual`: the default of the longest answer; `least`: tags, thoughts and `1+2` in tokens of several characters. */
function answerTokens({ chat, answer }: Pick<PromptTemplate, 'chat' | 'answer'>) {
  if (answer === 'whole') return { usual: 20, least: 1 };
  return chat === undefined ? { usual: 256, least: 8 } : { usual: 1_024, least: 24 };
}

function hyperparameter<Schema extends z.ZodType, Fallback extends z.output<Schema> | undefined>(
  schema: Schema,
  fallback: Fallback,
  help: string,
): Hyperparameter<Schema, Fallback> {
  return { schema, fallback, help };
}

function mapped(table: Table, of: (hyperparameter: Hyperparameter) => z.ZodType) {
  return Object.fromEntries(Object.entries(table).map(([key, entry]) => [key, of(entry)]));
}
