import { ScalarType, type DescField, type DescMessage } from '@bufbuild/protobuf';
import { PermanentError } from '../base/errors.js';

/**
 * How often the repeated parts of a message may occur in all, by `Message.field` of the schema. A part
 * without a bound here is only counted as a field.
 */
export interface PartLimits {
  readonly parts: Readonly<Record<string, number>>;
  readonly fields: number; // of all messages together
  readonly remedy: string; // what the sender should do about too many
}

/** A message whose decoding would take far more than its bytes. */
export class TooManyParts extends PermanentError {
  override readonly name = 'TooManyParts';
}

/** Many times what clients send at once. */
export const requestLimits: PartLimits = {
  parts: {
    'ForwardBackwardRequest.data': 16_384,
    'ForwardBackwardRequest.loss_fn_config': 64,
    'Datum.model_input': 65_536,
    'Datum.loss_fn_inputs': 131_072,
    'Tensor.shape': 131_072,
  },
  fields: 2_000_000,
  remedy: 'send them in several requests, of 1024 datums each',
};

/** Of what a server answers: a client asks for no more than this. */
export const resultLimits: PartLimits = {
  parts: {
    'ForwardBackwardOutput.loss_fn_outputs': 65_536,
    'ForwardBackwardOutput.metrics': 4_096,
    'ArrayRecord.fields': 65_536,
    'BatchedTensor.trailing_shape': 65_536,
    'SampleResponse.sequences': 65_536,
  },
  fields: 2_000_000,
  remedy: 'no request asks for so much, so the server does not keep to the API',
};

/**
 * Walks over a message without decoding it, and refuses one that a decoder would make much more of than
 * its bytes: an empty datum takes 2 bytes on the wire and 270 in memory. Allocates nothing for each part.
 *
 * @throws {TooManyParts} naming the part, how many there may be and the remedy.
 * @throws {PermanentError} naming the byte at which this is no protobuf message.
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

  /** The schemas do not nest in themselves, so this goes no deeper than they do. */
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
 * The model and sequence id of a `ForwardBackwardRequest` whose content cannot be used: what stands
 * beside its data, which is passed over.
 *
 * @throws {PermanentError} naming the byte at which this is no protobuf message.
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

  /** The low 32 bits of the varint here. */
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

  /** Passes over a value. @returns the length of its content, for a length-delimited one. */
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

/** How many elements a packed block has. */
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
