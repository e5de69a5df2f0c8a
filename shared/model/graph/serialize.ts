import { create, toBinary, type MessageInitShape } from '@bufbuild/protobuf';
import {
  AttributeProto_AttributeType as AttributeType,
  ModelProtoSchema,
  TensorProto_DataLocation as DataLocation,
  type AttributeProtoSchema,
  type ValueInfoProtoSchema,
} from '../onnx/onnx_pb.js';
import type { Attribute, ElementType, FileRange, Graph, Value, Weight } from './graph.js';

const opset = 23; // the first with RMSNormalization and RotaryEmbedding
const irVersion = 10;
const elementTypes: Record<ElementType, number> = {
  float32: 1,
  int64: 7,
  bool: 9,
  float16: 10,
  bfloat16: 16,
};

export function isFileRange(data: Weight['data']): data is FileRange {
  return 'path' in data;
}

/**
 * Serializes the graph as an ONNX model whose weights are external data: all in the files that have them, their paths
 * relative to `/`, or else each in a file with its own name. ONNX Runtime takes no mixture.
 *
 * @param hasWeightInputs whether weights are inputs instead.
 */
export function serialize(graph: Graph, { hasWeightInputs = false } = {}): Uint8Array {
  const names = new Map(graph.outputs.map(({ name, value }) => [value.name, name]));
  const call = (value: Value) => names.get(value.name) ?? value.name;

  const model = create(ModelProtoSchema, {
    irVersion: BigInt(irVersion),
    producerName: 'offbeat',
    opsetImport: [{ domain: '', version: BigInt(opset) }],
    graph: {
      name: 'offbeat',
      node: graph.nodes.map(({ op, inputs, outputs, attributes }) => ({
        name: outputs[0]!.name,
        opType: op,
        input: inputs.map(call),
        output: outputs.map(call),
        attribute: Object.entries(attributes).map(([name, value]) => attribute(name, value)),
      })),
      initializer: [
        ...graph.constants.map(({ value, data }) => ({
          ...tensorHead(value),
          rawData: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
        })),
        ...(hasWeightInputs ? [] : graph.weights).map(({ value, data }) => ({
          ...tensorHead(value),
          dataLocation: DataLocation.EXTERNAL,
          externalData: externalData(value, data),
        })),
      ],
      input: [
        ...graph.inputs,
        ...(hasWeightInputs ? graph.weights.map(({ value }) => value) : []),
      ].map((value) => valueInfo(value.name, value)),
      output: graph.outputs.map(({ name, value }) => valueInfo(name, value)),
    },
  });
  return toBinary(ModelProtoSchema, model);
}

function externalData(value: Value, data: Weight['data']): { key: string; value: string }[] {
  if (!isFileRange(data)) return [{ key: 'location', value: value.name }];
  return [
    { key: 'location', value: data.path.slice(1) },
    { key: 'offset', value: String(data.begin) },
    { key: 'length', value: String(data.end - data.begin) },
  ];
}

function tensorHead(value: Value): { name: string; dims: bigint[]; dataType: number } {
  return {
    name: value.name,
    dims: value.dims.map((dim) => BigInt(dim)),
    dataType: elementTypes[value.type],
  };
}

function valueInfo(
  name: string,
  { type, dims }: Value,
): MessageInitShape<typeof ValueInfoProtoSchema> {
  const dim = dims.map((length) => ({
    value:
      typeof length === 'number'
        ? { case: 'dimValue' as const, value: BigInt(length) }
        : { case: 'dimParam' as const, value: length },
  }));
  return { name, type: { tensorType: { elemType: elementTypes[type], shape: { dim } } } };
}

function attribute(name: string, value: Attribute): MessageInitShape<typeof AttributeProtoSchema> {
  if (typeof value === 'number') return { name, type: AttributeType.INT, i: BigInt(value) };
  if (typeof value === 'string') {
    return { name, type: AttributeType.STRING, s: new TextEncoder().encode(value) };
  }
  if ('float' in value) return { name, type: AttributeType.FLOAT, f: value.float };
  return { name, type: AttributeType.INTS, ints: value.map(BigInt) };
}
