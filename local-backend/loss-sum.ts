import { PermanentError } from '../shared/base/errors.js';
import { lossInputs } from '../shared/model/loss-graph.js';
import type { TrainingDatum } from '../shared/model/training-datum.js';
import type { LossName } from '../shared/rl/losses.js';

/**
 * The value of a loss from logprobs alone: what a forward pass without gradients reports. The same
 * formulas as the training graph's, in double precision.
 *
 * @param logprobs for each datum [N]: current logprobs of its targets.
 * @throws {PermanentError} when a datum lacks an array of the loss, or has one of another length.
 */
export function lossSum(
  loss: LossName,
  config: Readonly<Record<string, number>>,
  data: readonly TrainingDatum[],
  logprobs: readonly Float32Array[],
): number {
  const term = perToken(loss, { ...lossInputs[loss].settings, ...config });
  let sum = 0;
  data.forEach((datum, d) => {
    for (const name of lossInputs[loss].arrays) {
      const found = datum[name]?.length;
      if (found === logprobs[d]!.length) continue;
      throw new PermanentError(
        `${loss}: data[${d}] needs ${logprobs[d]!.length} ${name}, found ${found ?? 'none'}`,
      );
    }
    logprobs[d]!.forEach((logprob, i) => {
      sum -= term(datum, i, logprob);
    });
  });
  return sum;
}

/** What a token adds to the objective, which is minus the loss. */
function perToken(
  loss: LossName,
  settings: Readonly<Record<string, number>>,
): (datum: TrainingDatum, i: number, logprob: number) => number {
  const ratio = (datum: TrainingDatum, i: number, logprob: number) =>
    Math.exp(logprob - datum.logprobs![i]!);
  const clip = (r: number) =>
    Math.min(Math.max(r, settings['clip_low_threshold']!), settings['clip_high_threshold']!);
  switch (loss) {
    case 'cross_entropy':
      return (datum, i, logprob) => logprob * datum.weights![i]!;
    case 'importance_sampling':
      return (datum, i, logprob) => ratio(datum, i, logprob) * datum.advantages![i]!;
    case 'ppo':
      return (datum, i, logprob) => {
        const r = ratio(datum, i, logprob);
        const advantage = datum.advantages![i]!;
        return Math.min(r * advantage, clip(r) * advantage);
      };
    case 'cispo':
      return (datum, i, logprob) =>
        clip(ratio(datum, i, logprob)) * logprob * datum.advantages![i]!;
    case 'dro':
      return (datum, i, logprob) => {
        const distance = logprob - datum.logprobs![i]!;
        return logprob * datum.advantages![i]! - 0.5 * settings['beta']! * distance ** 2;
      };
  }
}
