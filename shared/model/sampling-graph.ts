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
 * Appends the draw of one token per row from softmax(logits / temperature), by inverting the
 * cumulative distribution at a uniform number. Inputs, each [batch, 1]: `uniform` in [0, 1),
 * `temperature`; `greedy` bool, which takes the most probable token instead; and `forced` int64, which is taken
 * instead unless it is negative.
 *
 * Outputs: `token` [batch] int64 and `logprob` [batch], natural log, of softmax(logits / temperature),
 * however the token was chosen: what a score of the same tokens gives.
 *
 * @param logits [batch, vocabSize]; the dimension may have another name.
 */
export function sampleToken(graph: Graph, logits: Value, vocabSize: number): void {
  const batch = logits.dims[0]!;
  const uniform = graph.input('uniform', 'float32', [batch, 1]);
  const temperature = graph.input('temperature', 'float32', [batch, 1]);
  const greedy = graph.input('greedy', 'bool', [batch, 1]);
  const forced = graph.input('forced', 'int64', [batch, 1]);

  const logprobs = logSoftmax(graph, div(graph, logits, temperature));
  const cumulative = graph.apply('CumSum', [exp(graph, logprobs), graph.int(1)], {
    dims: logprobs.dims,
  });
  // Rounding makes the total differ slightly from 1, so the threshold is a share of the actual total.
  const total = graph.apply('ReduceMax', [cumulative, graph.ints(1)], { dims: [batch, 1] });
  const isBelow = graph.apply('LessOrEqual', [cumulative, mul(graph, uniform, total)], {
    dims: logprobs.dims,
    type: 'bool',
  });
  const drawn = cast(graph, reduceSum(graph, cast(graph, isBelow, 'float32'), [1]), 'int64');
  const best = graph.apply(
    'ArgMax',
    [logprobs],
    { dims: [batch, 1], type: 'int64' },
    { axis: 1, keepdims: 1 },
  );
  const inRange = graph.apply('Min', [drawn, graph.int(vocabSize - 1)], {
    dims: drawn.dims,
    type: 'int64',
  });
  const isForced = graph.apply('GreaterOrEqual', [forced, graph.int(0)], {
    dims: forced.dims,
    type: 'bool',
  });
  const token = where(graph, isForced, forced, where(graph, greedy, best, inRange));
  const logprob = gatherElements(graph, logprobs, token);
  graph.output('token', reshape(graph, token, [batch]));
  graph.output('logprob', reshape(graph, logprob, [batch]));
}
