import type { LossName } from '../rl/losses.js';
import type { Graph, Value } from './graph/graph.js';
import {
  exp,
  max,
  min,
  mul,
  neg,
  reduceSum,
  reshape,
  stopGradient,
  sub,
} from './graph/operators.js';

/** The per-token arrays that a loss reads, each [batch, time]. */
export type LossArray = 'weights' | 'logprobs' | 'advantages';

/** What each loss needs: its arrays, and its settings with the values that TuFT takes when unset. */
export const lossInputs: Record<
  LossName,
  { readonly arrays: readonly LossArray[]; readonly settings: Readonly<Record<string, number>> }
> = {
  cross_entropy: { arrays: ['weights'], settings: {} },
  importance_sampling: { arrays: ['logprobs', 'advantages'], settings: {} },
  ppo: {
    arrays: ['logprobs', 'advantages'],
    settings: { clip_low_threshold: 0.9, clip_high_threshold: 1.1 },
  },
  cispo: {
    arrays: ['logprobs', 'advantages'],
    settings: { clip_low_threshold: 0.9, clip_high_threshold: 1.1 },
  },
  dro: { arrays: ['logprobs', 'advantages'], settings: { beta: 0.01 } },
};

/**
 * Appends a loss, summed over every token of every sequence. Inputs: the loss's arrays and settings,
 * and `mask` [batch, time], 1 on tokens and 0 on padding.
 *
 * With ℓ the current logprob, q the behavior logprob, A the advantage, w the weight, r = exp(ℓ - q):
 * cross_entropy -Σ ℓ·w; importance_sampling -Σ r·A; ppo -Σ min(r·A, clip(r)·A);
 * cispo -Σ stopgrad(clip(r))·ℓ·A; dro -Σ (ℓ·A - β/2·(ℓ - q)²).
 *
 * Source: the Tinker API's losses of these names; CISPO from MiniMax-M1 (arXiv:2506.13585).
 *
 * @param logprobs [batch, time]
 * @returns the loss, a scalar.
 */
export function loss(graph: Graph, name: LossName, logprobs: Value): Value {
  const dims = logprobs.dims;
  const array = (key: LossArray) => graph.input(key, 'float32', dims);
  const setting = (key: string) => graph.input(key, 'float32', []);
  const mask = graph.input('mask', 'float32', dims);

  const perToken = (): Value => {
    if (name === 'cross_entropy') return mul(graph, logprobs, array('weights'));
    const behavior = array('logprobs');
    const advantages = array('advantages');
    const logRatio = sub(graph, logprobs, behavior);
    const ratio = () => exp(graph, logRatio);
    const clip = (x: Value) =>
      min(graph, max(graph, x, setting('clip_low_threshold')), setting('clip_high_threshold'));
    switch (name) {
      case 'importance_sampling':
        return mul(graph, ratio(), advantages);
      case 'ppo': {
        const r = ratio();
        return min(graph, mul(graph, r, advantages), mul(graph, clip(r), advantages));
      }
      case 'cispo':
        return mul(graph, mul(graph, stopGradient(graph, clip(ratio())), logprobs), advantages);
      case 'dro': {
        const square = mul(graph, logRatio, logRatio);
        const penalty = mul(graph, mul(graph, setting('beta'), graph.float(0.5)), square);
        return sub(graph, mul(graph, logprobs, advantages), penalty);
      }
    }
  };
  const total = reduceSum(graph, mul(graph, perToken(), mask), [0, 1]);
  return reshape(graph, neg(graph, total), []);
}
