import { z } from 'zod';
import { unbounded, type RatioBounds } from './off-policy.js';

/** Inputs of a loss at each position besides the current logprob. */
export const lossInputs = ['weights', 'logprobs', 'advantages'] as const;
export type LossInput = (typeof lossInputs)[number];

/** Settings of the losses, by the names of the Tinker API. */
export type LossSetting = 'clip_low_threshold' | 'clip_high_threshold' | 'beta';

type Values<Key extends string> = Readonly<Record<Key, number>>;

/** The defaults of a setting. */
interface Defaults {
  readonly learner: number; // always sent by the learner, because servers differ
  readonly server: number; // used by TuFT and the local backend when a request leaves it out
}

interface Loss<Input extends LossInput = LossInput, Setting extends LossSetting = LossSetting> {
  /** What `term` computes, for the documentation; its symbols are explained at the table. */
  readonly formula: string;
  readonly inputs: readonly Input[];
  /** The input that the term is proportional to: at 0 a position has neither loss nor gradient. */
  readonly scaledBy: 'weights' | 'advantages' | undefined;
  readonly settings: Readonly<Partial<Record<Setting, Defaults>>>;
  /** The bounds outside which an importance ratio is clipped. */
  readonly clip: (settings: Values<Setting>) => RatioBounds;
  /** The loss of one position, and its derivative by the current logprob. */
  readonly term: (
    logprob: number,
    inputs: Values<Input>,
    settings: Values<Setting>,
  ) => readonly [loss: number, derivative: number];
}

/** Checks that a loss reads only inputs and settings that it declares. */
function defineLoss<Input extends LossInput, Setting extends LossSetting>(
  loss: Loss<Input, Setting>,
): Loss<Input, Setting> {
  return loss;
}

const thresholds = (settings: Values<'clip_low_threshold' | 'clip_high_threshold'>) => ({
  low: settings.clip_low_threshold,
  high: settings.clip_high_threshold,
});

/**
 * The losses of the Tinker API, summed over positions and minimized. The training graph has the same
 * terms in differentiable form (`shared/model/loss-graph.ts`).
 *
 * In the formulas ℓ is the current logprob, q the behavior logprob, A the advantage, w the weight, β the
 * setting `beta` and r = exp(ℓ - q), so that d r / d ℓ = r.
 *
 * Thresholds bound the ratio itself: (0.8, 1.2) is what PPO papers call ε = 0.2. `cispo` with (0, C)
 * is token-level truncated importance sampling.
 *
 * Cost: one `forward_backward`; one `forward` more for a loss that no input scales (`dro`), because its
 * prompt has a gradient too and needs behavior logprobs, which actors do not report.
 *
 * Source: TuFT `loss_fn/*.py`; CISPO is MiniMax-M1 (arXiv:2506.13585), DRO is Richemond et al. 2024
 * (arXiv:2405.19107).
 */
const table = {
  importance_sampling: defineLoss({
    formula: '-r·A',
    inputs: ['logprobs', 'advantages'],
    scaledBy: 'advantages',
    settings: {},
    clip: () => unbounded,
    term: (logprob, { logprobs: behavior, advantages: advantage }) => {
      const surrogate = Math.exp(logprob - behavior) * advantage;
      return [-surrogate, -surrogate];
    },
  }),
  ppo: defineLoss({
    formula: '-min(r·A, clip(r)·A)',
    inputs: ['logprobs', 'advantages'],
    scaledBy: 'advantages',
    settings: {
      clip_low_threshold: { learner: 0.8, server: 0.9 },
      clip_high_threshold: { learner: 1.2, server: 1.1 },
    },
    clip: thresholds,
    term: (logprob, { logprobs: behavior, advantages: advantage }, settings) => {
      const ratio = Math.exp(logprob - behavior);
      const surrogate = ratio * advantage;
      const clipped = clamp(ratio, thresholds(settings)) * advantage;
      // The clipped branch is a constant, so it has no gradient.
      return surrogate <= clipped ? [-surrogate, -surrogate] : [-clipped, 0];
    },
  }),
  cispo: defineLoss({
    formula: '-stopgrad(clip(r))·A·ℓ',
    inputs: ['logprobs', 'advantages'],
    scaledBy: 'advantages',
    settings: {
      clip_low_threshold: { learner: 0, server: 0.9 },
      clip_high_threshold: { learner: 4, server: 1.1 },
    },
    clip: thresholds,
    term: (logprob, { logprobs: behavior, advantages: advantage }, settings) => {
      const ratio = clamp(Math.exp(logprob - behavior), thresholds(settings)); // no gradient
      return [-ratio * advantage * logprob, -ratio * advantage];
    },
  }),
  dro: defineLoss({
    formula: '-(A·ℓ - β/2·(ℓ - q)²)',
    inputs: ['logprobs', 'advantages'],
    scaledBy: undefined, // the quadratic term applies to every position, including the prompt
    settings: { beta: { learner: 0.01, server: 0.01 } },
    clip: () => unbounded,
    term: (logprob, { logprobs: behavior, advantages: advantage }, { beta }) => {
      const gap = logprob - behavior;
      return [-(advantage * logprob - 0.5 * beta * gap * gap), -(advantage - beta * gap)];
    },
  }),
  cross_entropy: defineLoss({
    formula: '-w·ℓ',
    inputs: ['weights'],
    scaledBy: 'weights',
    settings: {},
    clip: () => unbounded,
    term: (logprob, { weights: weight }) => [-weight * logprob, -weight],
  }),
};

export type LossName = keyof typeof table;
export const LossName = z.enum(Object.keys(table) as LossName[]);
export const losses: Readonly<Record<LossName, Loss>> = table;

/** All settings of a loss: the given ones, and the defaults of one side for the others. */
export function lossSettings(
  name: LossName,
  given: Readonly<Record<string, number | undefined>>,
  side: keyof Defaults,
): Record<string, number> {
  const defaults = Object.entries(losses[name].settings);
  return Object.fromEntries(defaults.map(([key, value]) => [key, given[key] ?? value[side]]));
}

/**
 * The bounds on the importance ratio that a loss and its settings imply.
 *
 * @throws {RangeError} if a setting of the loss is missing.
 */
export function ratioBounds(name: LossName, config: Readonly<Record<string, number>>): RatioBounds {
  return losses[name].clip(checkedSettings(name, config));
}

export interface LossAndGradient {
  readonly loss: number; // summed over tokens; to be minimized
  readonly gradient: Float64Array; // [T] d loss / d current logprob
}

/**
 * A loss over the positions of one sequence, in double precision.
 *
 * @param currentLogprobs [T] under the policy in training.
 * @param inputs each [T]; those that the loss does not read are ignored.
 * @throws {RangeError} if an input or a setting that the loss needs is missing or has another length.
 */
export function lossAndGradient(
  name: LossName,
  currentLogprobs: ArrayLike<number>,
  inputs: Readonly<Partial<Record<LossInput, ArrayLike<number>>>>,
  config: Readonly<Record<string, number>>,
): LossAndGradient {
  const { length } = currentLogprobs;
  const settings = checkedSettings(name, config);
  const { scaledBy } = losses[name];
  const columns = losses[name].inputs.map((key) => {
    const values = inputs[key];
    if (values?.length === length) return [key, values] as const;
    throw new RangeError(`${name} needs ${length} ${key}, got ${values?.length ?? 'none'}`);
  });

  const gradient = new Float64Array(length);
  const position = { weights: NaN, logprobs: NaN, advantages: NaN };
  let loss = 0;
  for (let i = 0; i < length; i++) {
    if (scaledBy !== undefined && inputs[scaledBy]![i] === 0) continue; // else a ratio of ∞ would make it NaN
    for (const [key, values] of columns) position[key] = values[i]!;
    const [value, derivative] = losses[name].term(currentLogprobs[i]!, position, settings);
    loss += value;
    gradient[i] = derivative;
  }
  return { loss, gradient };
}

function checkedSettings(
  name: LossName,
  config: Readonly<Record<string, number>>,
): Values<LossSetting> {
  const missing = Object.keys(losses[name].settings).find((key) => config[key] === undefined);
  if (missing !== undefined) throw new RangeError(`${name} needs the setting ${missing}`);
  return config;
}

function clamp(ratio: number, { low, high }: RatioBounds): number {
  return Math.min(Math.max(ratio, low), high);
}
