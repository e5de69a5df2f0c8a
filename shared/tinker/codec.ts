import { create, toBinary } from '@bufbuild/protobuf';
import { PermanentError } from '../base/errors.js';
import { checkData, type Datum, type DatumInput, datumInputs } from '../rl/datum.js';
import { ServedLoss } from '../rl/gspo.js';
import { losses } from '../rl/losses.js';
import { bytesOf, int64Bytes, readFloats, readIntegers, readOffsets } from './tensor-bytes.js';
import { parse, within } from './read-message.js';
import * as pb from './tinker_pb.js';
import { requestLimits, resultLimits } from './wire-bounds.js';
import type { CustomInputs, ForwardBackwardRequest, ForwardBackwardResult } from './types.js';

/** The content type of every message of this file. */
export const protobufType = 'application/x-protobuf';

/** Encodes a request. @throws {PermanentError} if a datum is malformed. */
export function encodeForwardBackwardRequest(request: ForwardBackwardRequest): Uint8Array {
  checkData(request.data);
  return toBinary(
    pb.ForwardBackwardRequestSchema,
    create(pb.ForwardBackwardRequestSchema, {
      modelId: request.modelId,
      seqId: request.seqId,
      data: request.data.map(toDatumMessage),
      lossFn: request.loss,
      lossFnConfig: { ...request.config },
      forwardOnly: request.isForwardOnly,
    }),
  );
}

/**
 * Decodes a request. Loss inputs of unknown names are ignored, as in TuFT, except settings.
 *
 * @throws {PermanentError} if it is not such a message or needs an unsupported feature: images, sparse or 2-D
 *   tensors, an unknown loss.
 */
export function decodeForwardBackwardRequest(bytes: Uint8Array): ForwardBackwardRequest {
  const message = parse(pb.ForwardBackwardRequestSchema, bytes, requestLimits);
  const loss = lossNamed(message.lossFn);
  const isCustom = loss === 'custom';
  const data = message.data.map((datum, i) =>
    within(`datum ${i}`, () => fromDatumMessage(datum, isCustom)),
  );
  checkData(data);
  return {
    modelId: message.modelId,
    seqId: message.seqId,
    data,
    loss,
    config: configOf(message),
    isForwardOnly: message.forwardOnly,
    ...(isCustom && {
      custom: {
        lossId: lossIdOf(message),
        inputs: message.data.map((datum, i) => within(`datum ${i}`, () => customInputs(datum))),
      },
    }),
  };
}

/** The loss that a request for a custom loss names. */
function lossIdOf({ lossFnConfigV2: config }: pb.ForwardBackwardRequest): string {
  const { value } = config['loss_id'] ?? {};
  if (value?.case === 'text') return value.value;
  throw new PermanentError(
    'loss_fn_config.loss_id is missing: create the loss with create_custom_loss',
  );
}

/** All inputs of a datum but its targets, in the shapes that they have. */
function customInputs({ lossFnInputs }: pb.Datum): CustomInputs {
  const named = Object.entries(lossFnInputs).filter(([name]) => name !== 'target_tokens');
  return Object.fromEntries(
    named.map(([name, { encoding, dtype, shape }]) => {
      if (encoding.case !== 'dense') throw new PermanentError(`${name}: expected a dense tensor`);
      const isInteger = dtype === pb.DType.DTYPE_INT64 || dtype === pb.DType.DTYPE_INT32;
      const data = (isInteger ? readIntegers : readFloats)(encoding.value, dtype);
      const dims = shape.map(Number);
      if (dims.reduce((size, dim) => size * dim, 1) !== data.length) {
        throw new PermanentError(`${name}: shape ${shown(shape)} for ${data.length} elements`);
      }
      return [name, { shape: dims, data }];
    }),
  );
}

/** Loss settings as numbers. @throws {PermanentError} for text, which no loss here takes. */
function configOf(message: pb.ForwardBackwardRequest): Record<string, number> {
  const entries = Object.entries(message.lossFnConfigV2);
  if (entries.length === 0) return message.lossFnConfig;
  return Object.fromEntries(
    entries.flatMap(([key, { value }]) => {
      if (key === 'loss_id' && message.lossFn === 'custom') return [];
      if (value.case === 'number') return [[key, value.value] as const];
      const found = value.case === undefined ? 'empty' : JSON.stringify(value.value);
      throw new PermanentError(`loss_fn_config.${key} is ${found}: send a number, or leave it out`);
    }),
  );
}

/**
 * Refuses loss inputs that are settings of a loss, such as a clip threshold for each token.
 *
 * @throws {PermanentError} with the name and the remedy.
 */
export function checkInputNames(names: readonly string[]): void {
  const settings = Object.values(losses).flatMap(({ settings }) => Object.keys(settings));
  const wrong = names.find((name) => settings.includes(name));
  if (wrong === undefined) return;
  throw new PermanentError(
    `loss_fn_inputs.${wrong} is an array: send one number for all tokens in loss_fn_config`,
  );
}

/** Looks up a loss by name. @throws {PermanentError} if there is none. */
export function lossNamed(name: string): ServedLoss {
  const { data } = ServedLoss.safeParse(name);
  if (data !== undefined) return data;
  const expected = ServedLoss.options.join(', ');
  throw new PermanentError(`loss_fn is ${JSON.stringify(name)}, expected ${expected}`);
}

/** @param outputType the server's name for the outputs; TuFT uses the loss's name. */
export function encodeForwardBackwardResult(
  outputType: string,
  result: ForwardBackwardResult,
): Uint8Array {
  const offsets = [0];
  for (const { byteLength } of result.logprobs) offsets.push(offsets.at(-1)! + byteLength);
  const data = new Uint8Array(offsets.at(-1)!);
  result.logprobs.forEach((logprobs, i) => {
    data.set(bytesOf(logprobs), offsets[i]);
  });

  const record = create(pb.ArrayRecordSchema, {
    typeTag: outputType,
    numDatums: BigInt(result.logprobs.length),
  });
  record.fields['logprobs'] = create(pb.BatchedTensorSchema, {
    data,
    offsets: int64Bytes(offsets),
    dtype: pb.DType.DTYPE_FLOAT32,
  });
  return toBinary(
    pb.ForwardBackwardOutputSchema,
    create(pb.ForwardBackwardOutputSchema, {
      lossFnOutputType: outputType,
      lossFnOutputs: [record],
      metrics: result.metrics,
    }),
  );
}

/** Decodes a result. @throws {PermanentError} if it is not such a message or its offsets do not fit its data. */
export function decodeForwardBackwardResult(bytes: Uint8Array): ForwardBackwardResult {
  const message = parse(pb.ForwardBackwardOutputSchema, bytes, resultLimits);
  let left = maxDatums;
  const logprobs = message.lossFnOutputs.flatMap((record, i) => {
    const found = within(`output record ${i}`, () => logprobsOfRecord(record, left));
    left -= found.length;
    return found;
  });
  return { logprobs, metrics: message.metrics };
}

function toDatumMessage(datum: Datum): pb.Datum {
  const shape = [BigInt(datum.tokens.length)];
  const dense = (value: Uint8Array, dtype: pb.DType) =>
    create(pb.TensorSchema, { encoding: { case: 'dense', value }, dtype, shape });

  const message = create(pb.DatumSchema, {
    modelInput: [
      create(pb.ChunkSchema, {
        chunk: {
          case: 'encodedText',
          value: create(pb.EncodedTextChunkSchema, { tokens: bytesOf(datum.tokens) }),
        },
      }),
    ],
  });
  message.lossFnInputs['target_tokens'] = dense(
    int64Bytes(datum.targetTokens),
    pb.DType.DTYPE_INT64,
  );
  for (const name of datumInputs) {
    const values = datum.inputs[name];
    if (values) message.lossFnInputs[name] = dense(bytesOf(values), pb.DType.DTYPE_FLOAT32);
  }
  return message;
}

function fromDatumMessage(datum: pb.Datum, isCustom: boolean): Datum {
  const chunks = datum.modelInput.map(({ chunk }) => {
    if (chunk.case === 'encodedText') return readIntegers(chunk.value.tokens, pb.DType.DTYPE_INT32);
    throw new PermanentError(`model_input holds ${chunk.case ?? 'an empty chunk'}, expected text`);
  });
  const target = datum.lossFnInputs['target_tokens'];
  if (!target) throw new PermanentError('loss_fn_inputs.target_tokens is missing');

  const tokens = concatenate(chunks);
  const targetTokens = readDense('target_tokens', target, readIntegers);
  if (isCustom) return { tokens, targetTokens, inputs: {} };

  checkInputNames(Object.keys(datum.lossFnInputs));
  const inputs: Partial<Record<DatumInput, Float32Array>> = {};
  for (const name of datumInputs) {
    const tensor = datum.lossFnInputs[name];
    if (tensor) inputs[name] = readDense(name, tensor, readFloats);
  }
  return { tokens, targetTokens, inputs };
}

function readDense<Values extends ArrayLike<number>>(
  name: string,
  { encoding, dtype, shape }: pb.Tensor,
  read: (bytes: Uint8Array, dtype: pb.DType) => Values,
): Values {
  return within(name, () => {
    if (encoding.case !== 'dense') {
      throw new PermanentError(`expected a dense tensor, found ${encoding.case ?? 'no encoding'}`);
    }
    const values = read(encoding.value, dtype);
    const isVector =
      shape.length === 0 || (shape.length === 1 && Number(shape[0]) === values.length);
    if (!isVector) {
      throw new PermanentError(`shape ${shown(shape)} for ${values.length} elements, not 1-D`);
    }
    return values;
  });
}

/** Maximum datums in all records of a result: each becomes an array, and empty ones take no bytes on the wire. */
const maxDatums = 2 ** 16;

/** @param most how many datums the record may have. */
function logprobsOfRecord(record: pb.ArrayRecord, most: number): Float32Array[] {
  const tensor = record.fields['logprobs'];
  const count = Number(record.numDatums);
  const claimed = Math.max(count, (tensor?.offsets.byteLength ?? 0) / 8 - 1);
  if (claimed > most) {
    throw new PermanentError(`${claimed} datums, more than the remaining ${most} of ${maxDatums}`);
  }
  if (!tensor) return Array.from({ length: count }, () => new Float32Array());

  const offsets = readOffsets(tensor.offsets);
  const bad = offsets.findIndex((offset, i) => offset < (i === 0 ? 0 : offsets[i - 1]!));
  if (offsets[0] !== 0 || bad !== -1 || offsets.at(-1)! > tensor.data.byteLength) {
    throw new PermanentError(
      `offsets from ${offsets[0]} to ${offsets.at(-1)} ${bad === -1 ? '' : `(falling at ${bad}) `}leave the data`,
    );
  }
  if (count !== 0 && offsets.length !== count + 1) {
    throw new PermanentError(`${offsets.length} offsets for ${count} datums`);
  }
  if (tensor.trailingShape.some((size) => size !== 1n)) {
    throw new PermanentError(`logprobs of trailing shape ${shown(tensor.trailingShape)}`);
  }
  return offsets
    .slice(1)
    .map((end, i) => readFloats(tensor.data.subarray(offsets[i], end), tensor.dtype));
}

function shown(shape: readonly bigint[]): string {
  return `[${shape.slice(0, 8).join(', ')}${shape.length > 8 ? ', …' : ''}]`;
}

function concatenate(arrays: readonly Int32Array[]): Int32Array {
  if (arrays.length === 1) return arrays[0]!;
  const joined = new Int32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const array of arrays) {
    joined.set(array, offset);
    offset += array.length;
  }
  return joined;
}
