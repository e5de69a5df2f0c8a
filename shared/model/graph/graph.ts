/** A length of an axis: fixed, or a symbol such as `batch` that each run may choose. */
export type Dim = number | string;

export type ElementType = 'float32' | 'float16' | 'bfloat16' | 'int64' | 'bool';

/** A tensor that flows through a graph: its element type and shape are known when it is built. */
export interface Value {
  readonly name: string;
  readonly type: ElementType;
  readonly dims: readonly Dim[];
}

export type Attribute = number | string | readonly number[] | { readonly float: number };

/** One ONNX operator applied to values. */
export interface Node {
  readonly op: string;
  readonly inputs: readonly Value[];
  readonly outputs: readonly Value[];
  readonly attributes: Readonly<Record<string, Attribute>>;
}

/** A constant that is part of the graph's own bytes. */
interface Constant {
  readonly value: Value;
  readonly data: Float32Array | BigInt64Array;
}

/** Where a file has the elements of a tensor, in C order and little-endian. */
export interface FileRange {
  readonly path: string; // absolute
  readonly begin: number; // the first byte
  readonly end: number; // the byte after the last
}

/** A constant whose elements are not in the graph's own bytes: the model's weights. */
export interface Weight {
  readonly value: Value;
  readonly data: Float32Array | FileRange;
}

/**
 * A graph of ONNX operators under construction.
 *
 * Nodes are appended in execution order. A symbolic dimension gets its length from the first input that
 * has it, so the graph can use shapes that depend on the run.
 */
export class Graph {
  readonly nodes: Node[] = [];
  readonly inputs: Value[] = [];
  readonly outputs: { name: string; value: Value }[] = [];
  readonly constants: Constant[] = [];
  readonly weights: Weight[] = [];
  readonly #symbols = new Map<string, { input: Value; axis: number }>();
  readonly #shared = new Map<string, Value>();
  #count = 0;

  /** A tensor that each run supplies. */
  input(name: string, type: ElementType, dims: readonly Dim[]): Value {
    const value = { name, type, dims };
    this.inputs.push(value);
    dims.forEach((dim, axis) => {
      if (typeof dim === 'string' && !this.#symbols.has(dim)) {
        this.#symbols.set(dim, { input: value, axis });
      }
    });
    return value;
  }

  /** A tensor that each run returns. */
  output(name: string, value: Value): void {
    this.outputs.push({ name, value });
  }

  /** @param data elements of type `type`; those of a file are mapped into memory when the session is created. */
  weight(
    name: string,
    dims: readonly number[],
    data: Weight['data'],
    type: ElementType = 'float32',
  ): Value {
    const value: Value = { name, type, dims };
    this.weights.push({ value, data });
    return value;
  }

  /** A float32 constant; a plain number becomes a scalar. */
  float(data: number | Float32Array, dims: readonly number[] = []): Value {
    if (typeof data === 'number') {
      return this.#once(`float ${data}`, () => this.#constant(Float32Array.of(data), dims));
    }
    return this.#constant(data, dims);
  }

  /** A one-dimensional int64 constant. */
  ints(...data: number[]): Value {
    return this.#once(`ints ${data.join()}`, () =>
      this.#constant(BigInt64Array.from(data, BigInt), [data.length]),
    );
  }

  /** A scalar int64 constant. */
  int(data: number): Value {
    return this.#once(`int ${data}`, () => this.#constant(BigInt64Array.of(BigInt(data)), []));
  }

  /** Appends an operator with one output. */
  apply(
    op: string,
    inputs: readonly Value[],
    output: { dims: readonly Dim[]; type?: ElementType },
    attributes: Readonly<Record<string, Attribute>> = {},
  ): Value {
    return this.applyMany(op, inputs, [output], attributes)[0]!;
  }

  /** Appends an operator with several outputs. */
  applyMany(
    op: string,
    inputs: readonly Value[],
    outputs: readonly { dims: readonly Dim[]; type?: ElementType }[],
    attributes: Readonly<Record<string, Attribute>> = {},
  ): Value[] {
    const values = outputs.map(({ dims, type = 'float32' }) => ({
      name: `${op}_${this.#count++}`,
      type,
      dims,
    }));
    this.nodes.push({ op, inputs, outputs: values, attributes });
    return values;
  }

  /**
   * The lengths of `dims` as a one-dimensional int64 tensor, symbols read from the run's inputs. One that no input has
   * becomes -1, which a reshape takes for what remains.
   */
  shape(dims: readonly Dim[]): Value {
    if (dims.every((dim) => typeof dim === 'number')) return this.ints(...dims);
    const unknown = dims.find((dim) => typeof dim === 'string' && !this.#symbols.has(dim));
    return this.#once(`shape ${dims.join()}`, () => {
      const parts = dims.map((dim) =>
        typeof dim === 'number'
          ? this.ints(dim)
          : dim === unknown
            ? this.ints(-1)
            : this.length(dim),
      );
      return this.apply('Concat', parts, { dims: [dims.length], type: 'int64' }, { axis: 0 });
    });
  }

  /** The length of a symbolic dimension, as an int64 tensor [1]. */
  length(symbol: string): Value {
    const source = this.#symbols.get(symbol);
    if (source === undefined) throw new Error(`no input of the graph has the dimension ${symbol}`);
    return this.#once(`length ${symbol}`, () =>
      this.apply(
        'Shape',
        [source.input],
        { dims: [1], type: 'int64' },
        { start: source.axis, end: source.axis + 1 },
      ),
    );
  }

  /** Shares one value between equal constants and lengths. */
  #once(key: string, build: () => Value): Value {
    const known = this.#shared.get(key);
    if (known !== undefined) return known;
    const value = build();
    this.#shared.set(key, value);
    return value;
  }

  #constant(data: Float32Array | BigInt64Array, dims: readonly number[]): Value {
    const value: Value = {
      name: `const_${this.#count++}`,
      type: data instanceof Float32Array ? 'float32' : 'int64',
      dims,
    };
    this.constants.push({ value, data });
    return value;
  }
}
