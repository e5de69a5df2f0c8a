import type { Graph, Node, Value } from './graph.js';
import { gradientRules } from './gradient-rules.js';
import { add } from './operators.js';

/**
 * Appends the reverse-mode derivative of a scalar to its graph.
 *
 * Every node between the parameters and the loss is visited once, last first; its rule in
 * `gradientRules` turns the derivative by its output into derivatives by its inputs, which add up
 * where a value is used more than once. The result is made of ordinary operators.
 *
 * @param loss a value with one element.
 * @param parameters the values to differentiate by.
 * @returns dLoss/dParameter for each parameter, in its shape.
 * @throws {Error} if the loss does not depend on a parameter, or an operator has no rule.
 */
export function differentiate(graph: Graph, loss: Value, parameters: readonly Value[]): Value[] {
  const path = [...graph.nodes];
  const dependent = new Set(parameters.map((parameter) => parameter.name));
  for (const { op, inputs, outputs } of path) {
    if (op === 'Identity') continue; // stopGradient: its output is a constant
    if (inputs.some(({ name }) => dependent.has(name))) {
      for (const { name } of outputs) dependent.add(name);
    }
  }

  const gradients = new Map<string, Value>([[loss.name, ones(graph, loss)]]);
  for (const node of path.reverse()) {
    const output = node.outputs[0]!;
    const gradient = gradients.get(output.name);
    if (gradient === undefined || !dependent.has(output.name)) continue;
    for (const [index, part] of derivatives(graph, node, gradient, dependent)) {
      const { name } = node.inputs[index]!;
      const before = gradients.get(name);
      gradients.set(name, before === undefined ? part : add(graph, before, part));
    }
  }

  return parameters.map(({ name }) => {
    const gradient = gradients.get(name);
    if (gradient === undefined) throw new Error(`the loss does not depend on ${name}`);
    return gradient;
  });
}

/** The derivatives by the inputs of a node that depend on a parameter. */
function* derivatives(
  graph: Graph,
  node: Node,
  gradient: Value,
  dependent: ReadonlySet<string>,
): Generator<[index: number, part: Value]> {
  const rule = gradientRules[node.op];
  if (rule === undefined) throw new Error(`${node.op} has no gradient rule`);
  for (const [index, input] of node.inputs.entries()) {
    if (dependent.has(input.name)) yield [index, rule(graph, node, gradient, index)];
  }
}

function ones(graph: Graph, loss: Value): Value {
  if (loss.dims.some((dim) => dim !== 1)) {
    throw new Error(`only a scalar can be differentiated, not [${loss.dims.join()}]`);
  }
  return graph.float(
    Float32Array.of(1),
    loss.dims.map(() => 1),
  );
}
