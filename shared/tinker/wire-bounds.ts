import { ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf';
import { PermanentError } from '../base/errors.js';

/**
 * Maximum occurrences of the repeated parts of a message, by `Message.field` of the schema. Other parts only
 * count as fields.
 */
export interface PartLimits {
  readonly parts: Readonly<Record<string, number>>;
  readonly fields: number; // of all messages together
  readonly remedy: string; // advice to the sender
}

/** A message that would take far more memory decoded than encoded. */
export class TooManyParts extends PermanentError {
  override readonly name = 'TooManyParts';
}

/** Many times more than clients send in one request. */
export const requestLimits: PartLimits = {
  parts: {
    'ForwardBackwardRequest.data': 16_384,
    'ForwardBackwardRequest.loss_fn_config': 64,
    'ForwardBackwardRequest.loss_fn_config_v2': 64,
    'Datum.model_input': 65_536,
    'Datum.loss_fn_inputs': 131_072,
    'Tensor.shape': 131_072,
  },
  fields: 2_000_000,
  remedy: 'send them in several requests, of 1024 datums each',
};

/** Limits of a server's answer: a client never requests more. */
export const resultLimits: PartLimits = {
  parts: {
    'ForwardBackwardOutput.loss_fn_outputs': 65_536,
    'ForwardBackwardOutput.metrics': 4_096,
    'ArrayRecord.fields': 65_536,
    'BatchedTensor.trailing_shape': 65_536,
    'SampleResponse.sequences': 65_536,
  },
  fields: 2_000_000,
  remedy: 'no request asks for so much, so the server violates the API',
};

/**
 * Scans a message without decoding it, and refuses one that would take far more memory decoded than encoded:
 * an empty datum takes 2 bytes on the wire and 270 in memory. Allocates nothing per part.
 *
 * @throws {TooManyParts} with the part, its limit and the remedy.
 * @throws {PermanentError} with the byte offset at which the message is invalid.
 */
export function assertWithin(schema: DescMessage, bytes: Uint8Array, limits: PartLimits): void {
  const counts = new Map<DescField, number>();
  let fields = 0;
  const reader = new WireReader(bytes);

  function count(field: DescField, occurrences: number): void {
    const name = `${field.parent.name}.${field.name}`;
    const limit = limits.parts[name];
    if (limit === undefined) return;
    const total = (counts.get(field) ?? 0) + occurrences;
    counts.set(field, total);
    if (total > limit) {
      throw new TooManyParts(`it holds more than ${limit} ${name}; ${limits.remedy}`);
    }
  }

  function nextTag(end: number): number {
    if (++fields > limits.fields) {
      throw new TooManyParts(`it holds more than ${limits.fields} fields; ${limits.remedy}`);
    }
    return reader.varint(end);
  }

  /** Recursion is bounded: the schemas are not recursive. */
  function walk(message: DescMessage, end: number): void {
    const known = fieldsOf(message);
    while (reader.at < end) {
      const tag = nextTag(end);
      const field = known.get(tag >>> 3);
      const length = reader.skip(tag & 7, end);
      if (field === undefined) continue;
      const isBlock = (tag & 7) === lengthDelimited;
      if (isBlock && field.fieldKind === 'list' && field.listKind === 'scalar') {
        count(field, elementsIn(field, bytes, reader.at - length, reader.at));
        continue;
      }
      if (field.fieldKind === 'list' || field.fieldKind === 'map') count(field, 1);
      if (!isBlock) continue;
      const part = messageOf(field);
      const contentEnd = reader.at;
      reader.at = contentEnd - length;
      if (field.fieldKind === 'map') walkEntry(part, contentEnd);
      else if (part !== undefined) walk(part, contentEnd);
      reader.at = contentEnd;
    }
  }

  /** An entry of a map has its key in field 1 and its value in field 2. */
  function walkEntry(value: DescMessage | undefined, end: number): void {
    while (reader.at < end) {
      const tag = nextTag(end);
      const length = reader.skip(tag & 7, end);
      if (value === undefined || tag !== ((2 << 3) | lengthDelimited)) continue;
      const contentEnd = reader.at;
      reader.at = contentEnd - length;
      walk(value, contentEnd);
      reader.at = contentEnd;
    }
  }

  walk(schema, bytes.byteLength);
}

/**
 * Reads the model and sequence id of a `ForwardBackwardRequest` whose content is unusable, skipping its data.
 *
 * @throws {PermanentError} with the byte offset at which the message is invalid.
 */
export function readEnvelope(bytes: Uint8Array): { modelId: string; seqId: number } {
  const reader = new WireReader(bytes);
  const end = bytes.byteLength;
  let modelId = '';
  let seqId = 0;
  while (reader.at < end) {
    const tag = reader.varint(end);
    const from = reader.at;
    const length = reader.skip(tag & 7, end);
    if (tag === ((1 << 3) | lengthDelimited)) {
      modelId = Buffer.from(bytes.subarray(reader.at - length, reader.at)).toString('utf8');
    } else if (tag === 2 << 3) {
      reader.at = from;
      seqId = reader.varint(end) | 0;
    }
  }
  return { modelId, seqId };
}

const lengthDelimited = 2;

class WireReader {
  at = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** Reads the low 32 bits of the next varint. */
  varint(end: number): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      if (this.at >= end) throw this.#malformed('ends inside a number');
      const byte = this.bytes[this.at++]!;
      if (shift < 32) value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
    throw this.#malformed('has a number of more than 10 bytes');
  }

  /** Skips a value. @returns the length of its content, for a length-delimited one. */
  skip(wireType: number, end: number): number {
    switch (wireType) {
      case 0:
        this.varint(end);
        return 0;
      case 1:
        return this.#pass(8, end);
      case lengthDelimited:
        return this.#pass(this.varint(end), end);
      case 5:
        return this.#pass(4, end);
      default:
        throw this.#malformed(`has a value of wire type ${wireType}`);
    }
  }

  #pass(length: number, end: number): number {
    if (length > end - this.at) throw this.#malformed('ends inside a value');
    this.at += length;
    return length;
  }

  #malformed(what: string): PermanentError {
    return new PermanentError(`it ${what} at byte ${this.at}`);
  }
}

/** Counts the elements of a packed block. */
function elementsIn(field: DescField, bytes: Uint8Array, from: number, to: number): number {
  switch (field.fieldKind === 'list' && field.listKind === 'scalar' ? field.scalar : undefined) {
    case ScalarType.DOUBLE:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return (to - from) / 8;
    case ScalarType.FLOAT:
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return (to - from) / 4;
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return 1;
    default: {
      let elements = 0;
      for (let i = from; i < to; i++) if (bytes[i]! < 0x80) elements++;
      return elements;
    }
  }
}

function messageOf(field: DescField): DescMessage | undefined {
  switch (field.fieldKind) {
    case 'message':
      return field.message;
    case 'list':
      return field.listKind === 'message' ? field.message : undefined;
    case 'map':
      return field.mapKind === 'message' ? field.message : undefined;
    default:
      return undefined;
  }
}

const fieldsByNumber = new WeakMap<DescMessage, Map<number, DescField>>();

function fieldsOf(message: DescMessage): Map<number, DescField> {
  const known = fieldsByNumber.get(message);
  if (known !== undefined) return known;
  const made = new Map(message.fields.map((field) => [field.number, field]));
  fieldsByNumber.set(message, made);
  return made;
}
