import { errorText, PermanentError } from '../../shared/base/errors.js';
import type { LossAndGradient } from '../../shared/rl/losses.js';
import type { CustomLoss } from '../../shared/tinker/api.js';
import type { CustomInput, CustomInputs } from '../../shared/tinker/types.js';
import { operations } from './operations.js';
import { constant, derivative, type ElementType, type Tensor, variable } from './tensor.js';
import { isTensor, type Operation, type Value } from './values.js';

/** Of all values of one datum: 256 MiB, and as much for their gradients. */
const maxElements = 2 ** 25;

/** What a custom loss gives for one datum. */
export interface CustomLossValue extends LossAndGradient {
  readonly metrics: Readonly<Record<string, number>>; // by name, as in custom/kl:mean
}

type Node = CustomLoss['graph']['nodes'][number];
type Evaluate = (values: ReadonlyMap<string, Value>) => Value;

/** Modules of torch and Python whose functions go by their own names here. */
const modules =
  /^(?:torch|torch\.nn\.functional|torch\._C\._nn|torch\.Tensor|operator|math)\.(?=[^.]+$)/;
const elementTypes: Readonly<Record<string, ElementType>> = {
  bool: 'bool',
  int32: 'int',
  int64: 'int',
  float16: 'float',
  bfloat16: 'float',
  float32: 'float',
  float64: 'float',
};
const metricName = /^custom\/[a-z0-9_./-]{1,64}:(?:sum|mean)$/;

/**
 * A loss of one datum that arrived as data: the operations that torch.fx recorded, in their order. Each is looked up
 * in our own table, so nothing of it is executed as code.
 */
export class TracedLoss {
  readonly #steps: { readonly name: string; readonly evaluate: Evaluate }[] = [];
  #result: { loss: string; metrics: Readonly<Record<string, string>> } | undefined;

  /** @throws {PermanentError} naming the node that is malformed or uses what is not served. */
  constructor(private readonly loss: CustomLoss) {
    const placeholders = loss.graph.nodes.filter(({ op }) => op === 'placeholder');
    const names = placeholders.map(({ target }) => target);
    if (names.join() !== loss.inputs.map(({ name }) => name).join() || names[0] !== 'logprobs') {
      throw this.#refusal(`its graph reads ${names.join(', ')}; expected logprobs and its inputs`);
    }
    const known = new Set<string>();
    for (const node of loss.graph.nodes) {
      try {
        if (known.has(node.name)) throw new TypeError('the name is used twice');
        if (node.op === 'output') this.#result = readResult(node, known);
        else if (node.op !== 'placeholder') {
          this.#steps.push({ name: node.name, evaluate: stepOf(node, known) });
        }
      } catch (error) {
        throw this.#refusal(`${node.name}: ${errorText(error)}`);
      }
      known.add(node.name);
    }
    if (this.#result === undefined) throw this.#refusal('its graph has no output');
  }

  /**
   * @param logprobs [T] of the targets of a datum.
   * @param given the other inputs of the datum, by name.
   * @throws {PermanentError} if an input is missing or has another rank, if the loss is no single number, or if an
   *   operation does not fit its values.
   */
  evaluate(logprobs: Float32Array, given: CustomInputs): CustomLossValue {
    const current = variable([logprobs.length], logprobs);
    const values = new Map<string, Value>();
    const placeholders = this.loss.graph.nodes.filter(({ op }) => op === 'placeholder');
    this.loss.inputs.forEach(({ name, rank }, i) => {
      const input = name === 'logprobs' ? current : toTensor(given[name]);
      if (input?.shape.length !== rank) {
        const found = input === undefined ? 'none' : `rank ${input.shape.length}`;
        throw this.#refusal(`it reads ${name} of rank ${rank}, found ${found}`);
      }
      values.set(placeholders[i]!.name, input);
    });
    let elements = 0; // of all values, which stay until the gradient is computed
    for (const { name, evaluate } of this.#steps) {
      try {
        const value = evaluate(values);
        elements += isTensor(value) ? value.data.length : 0;
        if (elements > maxElements) {
          throw new RangeError(`all values together have more than ${maxElements} elements`);
        }
        values.set(name, value);
      } catch (error) {
        throw this.#refusal(`${name}: ${errorText(error)}`);
      }
    }
    const { loss, metrics } = this.#result!;
    const total = values.get(loss);
    if (!isTensor(total) || total.shape.length > 0) {
      throw this.#refusal(
        `it returns a loss of shape [${isTensor(total) ? total.shape.join() : ''}], not one number`,
      );
    }
    return {
      loss: total.data[0]!,
      gradient: derivative(total, current),
      metrics: Object.fromEntries(
        Object.entries(metrics).map(([key, node]) => [key, this.#number(key, values.get(node))]),
      ),
    };
  }

  #number(metric: string, value: Value): number {
    if (isTensor(value) && value.data.length === 1) return value.data[0]!;
    throw this.#refusal(`its metric ${metric} is not one number`);
  }

  #refusal(why: string): PermanentError {
    return new PermanentError(`custom loss ${JSON.stringify(this.loss.name)}: ${why}`);
  }
}

function toTensor(input: CustomInput | undefined): Tensor | undefined {
  if (input === undefined) return undefined;
  return constant(input.shape, input.data, input.data instanceof Int32Array ? 'int' : 'float');
}

/** The names of the nodes that an output node returns: a loss, and a dictionary of metrics. */
function readResult({ args }: Node, known: ReadonlySet<string>) {
  const [pair] = args.map((argument) => decode(argument, known));
  const [loss, metrics] = pair instanceof Array ? pair : [];
  if (!(loss instanceof Reference) || !(metrics instanceof Map)) {
    throw new TypeError('it returns no pair of a loss and a dictionary of metrics');
  }
  const names = [...metrics].map(([key, value]) => {
    if (!metricName.test(key)) {
      throw new TypeError(
        `metric ${JSON.stringify(key)} is not named custom/<name>:sum or custom/<name>:mean`,
      );
    }
    if (!(value instanceof Reference)) throw new TypeError(`metric ${key} is no node`);
    return [key, value.name] as const;
  });
  return { loss: loss.name, metrics: Object.fromEntries(names) };
}

/** What a node computes from the values of those before it. */
function stepOf({ op, target, args, kwargs }: Node, known: ReadonlySet<string>): Evaluate {
  if (op !== 'call_function' && op !== 'call_method') throw new TypeError(`${op} is not served`);
  const name = target.replace(modules, '');
  const operation = Object.hasOwn(operations, name) ? operations[name]! : undefined;
  if (operation === undefined) {
    throw new TypeError(`${target} is not served; there are ${Object.keys(operations).join(', ')}`);
  }
  const bound = bind(operation, name, args, kwargs).map((argument) => decode(argument, known));
  const isOfNumbers = target.startsWith('operator.');
  return (values) => {
    const given = bound.map((argument) => resolve(argument, values));
    const result = operation.run(given);
    // Arithmetic on the lengths of a shape stays a number, which may be an index.
    const isNumber = isOfNumbers && given.every((value) => typeof value === 'number');
    return isNumber && isTensor(result) ? result.data[0] : result;
  };
}

/** Positional and named arguments in the order of the parameters. `view(2, 3)` is `view([2, 3])`. */
function bind(
  { parameters }: Operation,
  name: string,
  args: readonly unknown[],
  kwargs: Readonly<Record<string, unknown>>,
): unknown[] {
  // The first size may also be the result of another node, as in `x.view(x.size(0), 1)`.
  const isSpread =
    (name === 'view' || name === 'reshape') && (args.length > 2 || typeof args[1] === 'number');
  const positional = isSpread ? [args[0], args.slice(1)] : [...args];
  if (positional.length > parameters.length) {
    throw new TypeError(
      `${name} takes at most ${parameters.length} arguments here: ${parameters.join(', ')}`,
    );
  }
  for (const [key, value] of Object.entries(kwargs)) {
    const place = parameters.indexOf(key);
    if (place === -1 && (value === null || value === false)) continue; // as `inplace=False`: it asks for nothing
    if (place === -1 || positional[place] !== undefined) {
      throw new TypeError(`${name} has no argument ${key} here; it has ${parameters.join(', ')}`);
    }
    positional[place] = value;
  }
  return positional;
}

/** The value of another node. */
class Reference {
  constructor(readonly name: string) {}
}
type Argument = Value | Reference | Argument[] | Map<string, Argument> | { slice: Argument[] };

/** Reads an argument as the API encodes it. @throws {TypeError} for an unknown form or an unknown node. */
function decode(encoded: unknown, known: ReadonlySet<string>): Argument {
  if (encoded === null || encoded === undefined) return null;
  if (typeof encoded === 'string' || typeof encoded === 'number' || typeof encoded === 'boolean')
    return encoded;
  const all = (list: unknown) => {
    if (Array.isArray(list)) return list.map((one: unknown) => decode(one, known));
    throw new TypeError(`${JSON.stringify(encoded)} is no list`);
  };
  if (Array.isArray(encoded)) return all(encoded);
  const [[kind, content] = []] = Object.entries(encoded) as [string, unknown][];
  switch (kind) {
    case 'ref': {
      if (known.has(String(content))) return new Reference(String(content));
      throw new TypeError(`it reads ${String(content)}, which does not come before it`);
    }
    case 'tuple':
      return all(content);
    case 'slice':
      return { slice: all(content) };
    case 'dict': {
      const entries = Object.entries(content as Record<string, unknown>);
      return new Map(entries.map(([key, value]) => [key, decode(value, known)]));
    }
    case 'ellipsis':
      return { ellipsis: true };
    case 'float':
      return Number(String(content).replace('inf', 'Infinity'));
    case 'dtype': {
      const elementType = elementTypes[String(content)];
      if (elementType !== undefined) return { elementType };
      throw new TypeError(`the dtype ${String(content)} is not served`);
    }
    case 'device':
    case 'layout':
    case 'memory_format':
      return null;
    default:
      throw new TypeError(`the argument ${JSON.stringify(encoded)} is not served`);
  }
}

function resolve(argument: Argument, values: ReadonlyMap<string, Value>): Value {
  if (argument instanceof Reference) return values.get(argument.name);
  if (argument instanceof Map) throw new TypeError('a dictionary is no argument here');
  if (Array.isArray(argument)) return argument.map((one) => resolve(one, values));
  if (typeof argument === 'object' && argument !== null && 'slice' in argument) {
    return { slice: (argument.slice as Argument[]).map((one) => resolve(one, values)) };
  }
  return argument;
}
