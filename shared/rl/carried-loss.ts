import type { Datum } from './datum.js';
import { lossAndGradient, type LossName } from './losses.js';

/**
 * The losses that can carry another one, the better first: their derivative by a position's logprob is an input of
 * that position. Every server has one of the two.
 */
export const carriers = ['importance_sampling', 'cross_entropy'] as const;
export type Carrier = (typeof carriers)[number];

/** Copies of the data for a forward pass with the carrier: they have no loss and no gradient. */
export function withoutLoss(data: readonly Datum[], carrier: Carrier): Datum[] {
  return data.map((datum) => {
    const zeros = new Float32Array(datum.tokens.length);
    return { ...datum, inputs: inputsOf(carrier, zeros, zeros) };
  });
}

/** Data of a carrier with the gradient of another loss. */
interface CarriedLoss {
  readonly data: readonly Datum[];
  readonly lossSum: number; // of the loss that is carried
}

/**
 * Expresses a loss by another one, at the weights that gave `logprobs` only: there both have the same derivative
 * by every logprob, and so the same gradient. A server that lacks the loss needs one forward pass more for it.
 *
 * @param logprobs of each datum, [N] each. A value that is not finite comes from broken weights, and has no gradient.
 * @throws {RangeError} if an input or a setting of the loss is missing.
 */
export function carryLoss(
  loss: LossName,
  config: Readonly<Record<string, number>>,
  data: readonly Datum[],
  logprobs: readonly Float32Array[],
  carrier: Carrier,
): CarriedLoss {
  let lossSum = 0;
  const carried = data.map((datum, i) => {
    const current = logprobs[i]!;
    const { loss: value, gradient } = lossAndGradient(loss, current, datum.inputs, config);
    lossSum += value;
    const pull = Float32Array.from(gradient, (slope) => finite(-slope));
    return { ...datum, inputs: inputsOf(carrier, pull, current.map(finite)) };
  });
  return { data: carried, lossSum };
}

/** @param pull [N] minus the derivative; @param current [N], at which the ratio of importance_sampling is 1. */
function inputsOf(carrier: Carrier, pull: Float32Array, current: Float32Array): Datum['inputs'] {
  return carrier === 'cross_entropy' ? { weights: pull } : { logprobs: current, advantages: pull };
}

function finite(value: number): number {
  return Number.isFinite(value) ? value : 0;
}
