import type { Graph, Value } from './graph/graph.js';
import {
  cast,
  div,
  exp,
  gatherElements,
  logSoftmax,
  mul,
  reduceSum,
  reshape,
  where,
} from './graph/operators.js';

/**
 * Appends the draw of one token a row from softmax(logits / temperature), by inverting the
 * cumulative distribution at a uniform number. Inputs: `uniform` [batch, 1] in [0, 1),
 * `temperature` scalar, `greedy` bool scalar, which takes the most probable token instead.
 *
 * Outputs: `token` [batch] int64 and `logprob` [batch], natural log, of the distribution that the
 * token was drawn from: 0 when greedy, for then it is certain.
 *
 * @param logits [batch, vocabSize], or [1, vocabSize] for a batch that starts from one prompt.
 */
export function sampleToken(graph: Graph, logits: Value, vocabSize: number): void {
  const uniform = graph.input('uniform', 'float32', ['batch', 1]);
  const temperature = graph.input('temperature', 'float32', []);
  const greedy = graph.input('greedy', 'bool', []);

  const logprobs = graph.apply(
    'Expand',
    [logSoftmax(graph, div(graph, logits, temperature)), graph.shape(['batch', vocabSize])],
    { dims: ['batch', vocabSize] },
  );
  const cumulative = graph.apply('CumSum', [exp(graph, logprobs), graph.int(1)], {
    dims: logprobs.dims,
  });
  // Rounding lets the total miss 1 by a little; the threshold is a share of what it really is.
  const total = graph.apply('ReduceMax', [cumulative, graph.ints(1)], { dims: ['batch', 1] });
  const isBelow = graph.apply('LessOrEqual', [cumulative, mul(graph, uniform, total)], {
    dims: logprobs.dims,
    type: 'bool',
  });
  const drawn = cast(graph, reduceSum(graph, cast(graph, isBelow, 'float32'), [1]), 'int64');
  const best = graph.apply(
    'ArgMax',
    [logprobs],
    { dims: ['batch', 1], type: 'int64' },
    { axis: 1, keepdims: 1 },
  );
  const inRange = graph.apply('Min', [drawn, graph.int(vocabSize - 1)], {
    dims: drawn.dims,
    type: 'int64',
  });
  const token = where(graph, greedy, best, inRange);
  const logprob = where(graph, greedy, graph.float(0), gatherElements(graph, logprobs, token));
  graph.output('token', reshape(graph, token, ['batch']));
  graph.output('logprob', reshape(graph, logprob, ['batch']));
}
