import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRandom } from '../../../shared/base/random.js';
import { differentiate } from '../../../shared/model/graph/differentiate.js';
import { Graph } from '../../../shared/model/graph/graph.js';
import { floatOutput, floats, Session } from '../../../shared/model/graph/session.js';
import { loss } from '../../../shared/model/loss-graph.js';
import { lossAndGradient, losses, LossName, lossSettings } from '../../../shared/rl/losses.js';

const random = createRandom('loss graph test');
const length = 64;
const column = (low: number, high: number) =>
  Float32Array.from({ length }, () => low + (high - low) * random.next());

describe('the graph of each loss', () => {
  const logprobs = column(-3, 0);
  const inputs = {
    weights: column(0, 1),
    logprobs: column(-3, 0), // ratios from e^-3 to e^3: on both sides of every default bound
    advantages: column(-1, 1),
  };

  for (const name of LossName.options) {
    it(`the graph of ${name} has the value and the gradient that the table of losses defines`, async () => {
      const graph = new Graph();
      const current = graph.input('current', 'float32', ['batch', 'time']);
      const total = loss(graph, name, current);
      graph.output('loss', total);
      graph.output('gradient', differentiate(graph, total, [current])[0]!);
      const session = await Session.create(graph, 1);
      for (const side of ['learner', 'server'] as const) {
        const settings = lossSettings(name, {}, side);
        const row = (values: Float32Array) => floats(values, [1, length]);
        const outputs = await session.run({
          current: row(logprobs),
          mask: row(new Float32Array(length).fill(1)),
          ...Object.fromEntries(losses[name].inputs.map((key) => [key, row(inputs[key])])),
          ...Object.fromEntries(
            Object.entries(settings).map(([key, value]) => [
              key,
              floats(Float32Array.of(value), []),
            ]),
          ),
        });
        const expected = lossAndGradient(name, logprobs, inputs, settings);
        assertNear(floatOutput(outputs, 'loss')[0]!, expected.loss, 'loss');
        floatOutput(outputs, 'gradient').forEach((value, i) => {
          assertNear(value, expected.gradient[i]!, `gradient ${i}`);
        });
      }
    });
  }
});

function assertNear(actual: number, expected: number, what: string): void {
  const error = Math.abs(actual - expected);
  assert(error < 1e-4 * (1 + Math.abs(expected)), `${what}: ${actual} is not ${expected}`);
}
