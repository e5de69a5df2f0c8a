import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { differentiate } from '../../../shared/model/graph/differentiate.js';
import { gradientRules } from '../../../shared/model/graph/gradient-rules.js';
import { Graph, type Dim, type Value } from '../../../shared/model/graph/graph.js';
import * as op from '../../../shared/model/graph/operators.js';
import { floatOutput, floats, Session, type Feeds } from '../../../shared/model/graph/session.js';
import { createRandom } from '../../../shared/base/random.js';

/** A parameter of a case: its symbolic dimensions, the lengths that they get, and its range. */
interface Parameter {
  readonly dims: readonly Dim[];
  readonly lengths: readonly number[];
  readonly low?: number;
  readonly high?: number;
}

interface Case {
  readonly operator: string; // the ONNX operator whose rule is on trial
  readonly title: string;
  readonly parameters: readonly Parameter[];
  readonly build: (graph: Graph, ...parameters: Value[]) => Value;
}

const matrix = (rows: number, columns: number): Parameter => ({
  dims: [rows, columns],
  lengths: [rows, columns],
});
const rows: Parameter = { dims: ['n', 3], lengths: [4, 3] };
const row: Parameter = { dims: [3], lengths: [3] };
const positive: Parameter = { dims: ['n', 3], lengths: [4, 3], low: 0.5, high: 2 };
const condition = (graph: Graph, x: Value) => op.lessOrEqual(graph, x, graph.float(0));
const indices = (graph: Graph, ...data: number[]) => graph.ints(...data);

const cases: Case[] = [
  { operator: 'Add', title: 'a row added to each row', parameters: [rows, row], build: op.add },
  { operator: 'Sub', title: 'a row taken from each row', parameters: [rows, row], build: op.sub },
  { operator: 'Mul', title: 'each row times a row', parameters: [rows, row], build: op.mul },
  {
    operator: 'Div',
    title: 'rows by a row',
    parameters: [rows, { ...row, low: 1, high: 2 }],
    build: op.div,
  },
  { operator: 'Neg', title: 'all elements', parameters: [rows], build: op.neg },
  { operator: 'Exp', title: 'all elements', parameters: [rows], build: op.exp },
  { operator: 'Sqrt', title: 'positive elements', parameters: [positive], build: op.sqrt },
  { operator: 'Sigmoid', title: 'all elements', parameters: [rows], build: op.sigmoid },
  { operator: 'Min', title: 'against a row', parameters: [rows, row], build: op.min },
  { operator: 'Max', title: 'against a row', parameters: [rows, row], build: op.max },
  {
    operator: 'Where',
    title: 'both choices',
    parameters: [rows, row],
    build: (graph, a, b) => op.where(graph, condition(graph, op.stopGradient(graph, a)), a, b),
  },
  {
    operator: 'MatMul',
    title: 'a batch by one matrix',
    parameters: [{ dims: ['b', 2, 3], lengths: [4, 2, 3] }, matrix(3, 5)],
    build: op.matmul,
  },
  {
    operator: 'MatMul',
    title: 'grouped heads that share a key',
    parameters: [
      { dims: ['b', 2, 3, 4, 5], lengths: [2, 2, 3, 4, 5] },
      { dims: ['b', 2, 1, 5, 4], lengths: [2, 2, 1, 5, 4] },
    ],
    build: op.matmul,
  },
  ...[false, true].flatMap((transA) =>
    [false, true].map((transB): Case => {
      return {
        operator: 'Gemm',
        title: `${transA ? 'Aᵀ' : 'A'}·${transB ? 'Bᵀ' : 'B'} + C`,
        parameters: [
          transA ? matrix(3, 4) : matrix(4, 3),
          transB ? matrix(5, 3) : matrix(3, 5),
          matrix(1, 5),
        ],
        build: (graph, a, b, c) => op.gemm(graph, a, b, { transA, transB, c: c }),
      };
    }),
  ),
  {
    operator: 'Reshape',
    title: 'rows to a cube',
    parameters: [{ dims: ['n', 6], lengths: [4, 6] }],
    build: (graph, x) => op.reshape(graph, x, ['n', 2, 3]),
  },
  {
    operator: 'Transpose',
    title: 'three axes in a cycle',
    parameters: [{ dims: ['n', 2, 3], lengths: [4, 2, 3] }],
    build: (graph, x) => op.transpose(graph, x, [2, 0, 1]),
  },
  {
    operator: 'ReduceSum',
    title: 'the last axis',
    parameters: [rows],
    build: (graph, x) => op.reduceSum(graph, x, [1]),
  },
  {
    operator: 'ReduceMean',
    title: 'both axes',
    parameters: [rows],
    build: (graph, x) => op.reduceMean(graph, x, [0, 1]),
  },
  { operator: 'Softmax', title: 'the last axis', parameters: [rows], build: op.softmax },
  { operator: 'LogSoftmax', title: 'the last axis', parameters: [rows], build: op.logSoftmax },
  {
    operator: 'Gather',
    title: 'rows taken more than once',
    parameters: [matrix(4, 3)],
    build: (graph, x) => op.gather(graph, x, indices(graph, 2, 0, 2, 2, 3)),
  },
  {
    operator: 'GatherElements',
    title: 'one element a row',
    parameters: [matrix(4, 3)],
    build: (graph, x) =>
      op.gatherElements(graph, x, op.reshape(graph, indices(graph, 2, 0, 2, 1), [4, 1])),
  },
  {
    operator: 'RMSNormalization',
    title: 'values and scale',
    parameters: [rows, row],
    build: (graph, x, scale) => op.rmsNorm(graph, x, scale, 1e-3),
  },
  {
    operator: 'RotaryEmbedding',
    title: 'two heads at three positions',
    parameters: [{ dims: [2, 3, 8], lengths: [2, 3, 8] }],
    build: (graph, x) => {
      const angles = Float32Array.from({ length: 12 }, (_, i) => i * 0.7);
      return op.rotate(graph, x, {
        cos: graph.float(angles.map(Math.cos), [2, 3, 2]),
        sin: graph.float(angles.map(Math.sin), [2, 3, 2]),
        heads: 2,
      });
    },
  },
];

const random = createRandom('gradient rules');

function draw({ lengths, low = -1, high = 1 }: Parameter): Float32Array {
  const length = lengths.reduce((product, dim) => product * dim, 1);
  return Float32Array.from({ length }, () => low + (high - low) * random.next());
}

/** A scalar that weighs every element of the case's result differently. */
function weighted(graph: Graph, y: Value): Value {
  const weights = graph.input('weights', 'float32', y.dims);
  const axes = y.dims.map((_, axis) => axis);
  return op.reduceSum(graph, op.mul(graph, y, weights), axes);
}

describe('the gradient rules', () => {
  for (const { operator, title, parameters, build } of cases) {
    it(`the gradient rule of ${operator} agrees with finite differences: ${title}`, async () => {
      const graph = new Graph();
      const values = parameters.map(({ dims }, i) => graph.input(`p${i}`, 'float32', dims));
      const y = build(graph, ...values);
      graph.output('y', y);
      const loss = weighted(graph, y);
      const gradients = differentiate(graph, loss, values);
      graph.output('loss', loss);
      gradients.forEach((gradient, i) => {
        graph.output(`g${i}`, gradient);
      });
      const session = await Session.create(graph, 1);

      const points = parameters.map(draw);
      const lengths = await outputDims(parameters, build, points);
      const weights = draw({ dims: [], lengths });
      const feeds = (changed = points): Feeds => ({
        weights: floats(weights, lengths),
        ...Object.fromEntries(
          changed.map((data, i) => [`p${i}`, floats(data, parameters[i]!.lengths)]),
        ),
      });
      const outputs = await session.run(feeds());
      const step = 1e-2;
      for (const [i, point] of points.entries()) {
        const derived = floatOutput(outputs, `g${i}`);
        assert.equal(derived.length, point.length, 'the gradient has the shape of its parameter');
        for (let j = 0; j < point.length; j++) {
          const lossAt = async (offset: number) => {
            const moved = point.slice();
            moved[j]! += offset;
            const result = await session.run(feeds(points.with(i, moved)));
            return floatOutput(result, 'loss')[0]!;
          };
          const measured = ((await lossAt(step)) - (await lossAt(-step))) / (2 * step);
          assert.ok(
            Math.abs(derived[j]! - measured) < 2e-3 + 5e-3 * Math.abs(measured),
            `p${i}[${j}]: derived ${derived[j]}, measured ${measured}`,
          );
        }
      }
    });
  }

  it('the gradient rules are all tested', () => {
    const tried = new Set(cases.map(({ operator }) => operator));
    assert.deepEqual([...tried].sort(), Object.keys(gradientRules).sort());
  });
});

/** The lengths of the result's axes, from running the operator alone. */
async function outputDims(
  parameters: readonly Parameter[],
  build: Case['build'],
  points: readonly Float32Array[],
): Promise<readonly number[]> {
  const graph = new Graph();
  const values = parameters.map(({ dims }, i) => graph.input(`p${i}`, 'float32', dims));
  graph.output('y', build(graph, ...values));
  const session = await Session.create(graph, 1);
  const feeds = points.map((data, i) => [`p${i}`, floats(data, parameters[i]!.lengths)] as const);
  return (await session.run(Object.fromEntries(feeds)))['y']!.dims;
}

describe('differentiate', () => {
  it('differentiate adds up the gradients of a value that is used twice', async () => {
    const graph = new Graph();
    const x = graph.input('x', 'float32', []);
    const y = op.add(graph, op.mul(graph, x, x), x); // x² + x
    graph.output('dy', differentiate(graph, y, [x])[0]!);
    const session = await Session.create(graph, 1);
    const outputs = await session.run({ x: floats(Float32Array.of(3), []) });
    assert.deepEqual([...floatOutput(outputs, 'dy')], [7]);
  });

  it('differentiate lets no gradient through stopGradient', async () => {
    const graph = new Graph();
    const x = graph.input('x', 'float32', []);
    const y = op.mul(graph, op.stopGradient(graph, x), x); // as if c·x
    graph.output('dy', differentiate(graph, y, [x])[0]!);
    const session = await Session.create(graph, 1);
    const outputs = await session.run({ x: floats(Float32Array.of(3), []) });
    assert.deepEqual([...floatOutput(outputs, 'dy')], [3]);
  });

  it('differentiate refuses a loss that does not depend on a parameter', () => {
    const graph = new Graph();
    const x = graph.input('x', 'float32', []);
    const unused = graph.input('unused', 'float32', []);
    assert.throws(() => differentiate(graph, op.neg(graph, x), [unused]), /depend on unused/);
  });

  it('differentiate refuses a loss that is not a scalar', () => {
    const graph = new Graph();
    const x = graph.input('x', 'float32', [2]);
    assert.throws(() => differentiate(graph, op.neg(graph, x), [x]), /only a scalar/);
  });
});
