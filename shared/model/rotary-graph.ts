import type { Graph, Value } from './graph/graph.js';
import { cast, cos, mul, reshape, sin } from './graph/operators.js';
import type { ModelConfig } from './model-config.js';
import { rotarySpectrum } from './rotary.js';
import type { TokenDims } from './token-dims.js';

/**
 * Cosines and sines of every token's angles, times the amplitude: [batch, time, D/2] each. They are
 * computed where they are needed, because tables of all positions would fill the memory: 67 MB a
 * graph for Llama 3.1's 131,072.
 *
 * @param positions [batch, time] int64
 */
export function rotaryWaves(
  graph: Graph,
  { rotary, headDim }: ModelConfig,
  positions: Value,
  { batch, time }: TokenDims,
): { cos: Value; sin: Value } {
  const { frequencies, amplitude } = rotarySpectrum(rotary, headDim);
  const column = cast(graph, reshape(graph, positions, [batch, time, 1]), 'float32');
  const angles = mul(graph, column, graph.float(frequencies, [frequencies.length]));
  const scaled = (x: Value) => (amplitude === 1 ? x : mul(graph, x, graph.float(amplitude)));
  return { cos: scaled(cos(graph, angles)), sin: scaled(sin(graph, angles)) };
}
