import assert from 'node:assert/strict';
import { losses, lossSettings, type LossName } from '../../shared/rl/losses.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { ForwardBackwardResult } from '../../shared/tinker/types.js';
import { imitation } from '../local-backend/running-backend.js';
import { greatestDifference } from './golden.js';

export const adam = {
  learningRate: 0.1,
  beta1: 0.9,
  beta2: 0.95,
  eps: 1e-8,
  weightDecay: 0,
  gradClipNorm: 0,
};

/** Rollouts of another policy: about half of the ratios are beyond the bounds 0.5 and 2. */
export const rollouts = [
  [3, 4, 5, 6, 7, 8, 9],
  [8, 9, 10, 3],
].map((tokens) => {
  const datum = imitation(tokens);
  const like = (value: (i: number) => number) =>
    Float32Array.from(datum.tokens, (_, i) => value(i));
  const inputs = {
    weights: like((i) => 0.5 + 0.25 * i),
    logprobs: like((i) => -2.5 - 1.5 * Math.sin(3 * i)),
    advantages: like((i) => (i % 2 === 0 ? 0.7 : -0.4)),
  };
  return { ...datum, inputs };
});

/** Bounds that about half of the ratios of `rollouts` are beyond. */
export const bounds = { clip_low_threshold: 0.5, clip_high_threshold: 2 };

/** Two steps of two passes each, all called at once, and the logprobs after them. */
export function trainTwoSteps(
  run: TrainingRun,
  loss: LossName,
  temperature: number,
): Promise<ForwardBackwardResult[]> {
  const config = { ...lossSettings(loss, bounds, 'learner'), temperature };
  // Miles refuses inputs that the loss does not read.
  const data = rollouts.map(({ inputs, ...datum }) => {
    const read = losses[loss].inputs.map((name) => [name, inputs[name]] as const);
    return { ...datum, inputs: Object.fromEntries(read) };
  });
  const calls = [];
  for (let step = 0; step < 2; step++) {
    calls.push(...data.map((datum) => run.forwardBackward([datum], loss, config)));
    calls.push(run.optimStep(adam).then((metrics) => ({ metrics, logprobs: [] })));
  }
  return Promise.all([...calls, run.forward(data, loss, config)]);
}

/** The greatest difference of a logprob, at any call; asserts that the training moved them at all. */
export function apart(
  found: readonly ForwardBackwardResult[],
  expected: readonly ForwardBackwardResult[],
): number {
  const moved = greatestDifference(expected.at(-1)!.logprobs[0]!, expected[0]!.logprobs[0]!);
  assert(moved > 0.1, `training moved the logprobs by only ${moved}`);
  return Math.max(
    ...expected.flatMap(({ logprobs }, call) =>
      logprobs.map((of, i) => greatestDifference(found[call]!.logprobs[i]!, of)),
    ),
  );
}
