import type { LossInput, LossName, LossSetting } from '../rl/losses.js';
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

/**
 * Appends a loss of `shared/rl/losses.ts`, summed over every token of every sequence, in
 * differentiable form. Inputs: those of the loss, its settings, and `mask` [batch, time], 1 on tokens and 0 on
 * padding.
 *
 * @param logprobs [batch, time]
 * @returns the loss, a scalar.
 */
export function loss(graph: Graph, name: LossName, logprobs: Value): Value {
  const dims = logprobs.dims;
  const array = (key: LossInput) => graph.input(key, 'float32', dims);
  const setting = (key: LossSetting) => graph.input(key, 'float32', []);
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
