import type { Graph, Value } from './graph/graph.js';
import type { ModelConfig } from './model-config.js';

/**
 * Cosines and sines of every position's angles, [maxPositions, D/2] each.
 *
 * Source: RoPE (Su et al. 2021, arXiv:2104.09864); pair i turns by position · theta^(-2i/D).
 */
export function rotaryTables(graph: Graph, config: ModelConfig): { cos: Value; sin: Value } {
  const { maxPositions, headDim, ropeTheta } = config;
  const half = headDim / 2;
  const cos = new Float32Array(maxPositions * half);
  const sin = new Float32Array(maxPositions * half);
  for (let i = 0; i < half; i++) {
    const frequency = ropeTheta ** ((-2 * i) / headDim);
    for (let position = 0; position < maxPositions; position++) {
      cos[position * half + i] = Math.cos(position * frequency);
      sin[position * half + i] = Math.sin(position * frequency);
    }
  }
  const dims = [maxPositions, half];
  return { cos: graph.float(cos, dims), sin: graph.float(sin, dims) };
}
