import { Graph } from '../../shared/model/graph/graph.js';
import { gemm } from '../../shared/model/graph/operators.js';
import { floats, Session, type Feeds } from '../../shared/model/graph/session.js';
import type { Figure } from './main.js';
import { medianSeconds } from './stopwatch.js';

/** [M, N, K] of the products of a training step of the shipped model, rows of 480 tokens, and a large one. */
const shapes = {
  'layer, 480 tokens: into the MLP': [480, 384, 128],
  'layer, 480 tokens: out of the MLP': [480, 128, 384],
  'gradient of a matrix of the MLP': [384, 128, 480],
  'LoRA of rank 32, 480 tokens: up': [480, 384, 32],
  'large matrices': [1024, 1024, 1024],
} as const;
const repeats = 20; // in one run, so that calling it costs nothing

/** Measures how fast one thread of ONNX Runtime multiplies matrices of float32: the limit of everything above it. */
export async function benchProducts(): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const [what, [m, n, k]] of Object.entries(shapes)) {
    const graph = new Graph();
    const a = graph.input('a', 'float32', [m, k]);
    const feeds: Feeds = { a: filled(m, k) };
    for (let i = 0; i < repeats; i++) {
      const b = graph.input(`b${i}`, 'float32', [k, n]); // each its own, so that none is left out as a repetition
      graph.output(`product ${i}`, gemm(graph, a, b));
      feeds[b.name] = filled(k, n);
    }
    const session = await Session.create(graph, 1);
    const seconds = await medianSeconds(15, () => session.run(feeds));
    figures.push({ what, value: (2 * m * n * k * repeats) / seconds / 1e9, unit: 'GFLOP/s' });
  }
  return figures;
}

function filled(rows: number, columns: number): Feeds[string] {
  const data = Float32Array.from({ length: rows * columns }, (_, i) => (i % 7) - 3);
  return floats(data, [rows, columns]);
}
