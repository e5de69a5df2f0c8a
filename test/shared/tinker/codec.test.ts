import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { PermanentError } from '../../../shared/base/errors.js';
import {
  decodeForwardBackwardRequest,
  decodeForwardBackwardResult,
  encodeForwardBackwardRequest,
  encodeForwardBackwardResult,
} from '../../../shared/tinker/codec.js';
import { decodeSampleResult, encodeSampleResult } from '../../../shared/tinker/sample-codec.js';
import * as pb from '../../../shared/tinker/tinker_pb.js';
import type { Datum } from '../../../shared/rl/datum.js';
import { sampleRequest as request } from '../../support/sample-request.js';

// Golden bytes from ../shared/reference/tinker-protocol.md §3.5, made by a hand-written encoder.
const goldenRequest =
  '0a026d3110011a640a100a0e0a0c05000000060000000700000012300a0d7461726765745f746f6b656e73121f0a18' +
  '0600000000000000070000000000000008000000000000001802220103121e0a077765696768747312130a0c000000' +
  '000000803f0000803f1801220103220d63726f73735f656e74726f7079';
const goldenBeta = '2a0f0a046265746111000000000000e03f';
const goldenForwardOnly = '3001';
const goldenResult =
  '0a0d63726f73735f656e74726f707912410a0d63726f73735f656e74726f7079122e0a086c6f6770726f627312220a0c' +
  '0000c0bf000000bf000080be121000000000000000000c00000000000000180118011a130a086c6f73733a73756d1100' +
  '0000000000e83f';
const goldenSample = '0a16080112080b0000000c0000001a08000000bf000080be12080000c07f000000c0';

const result = {
  logprobs: [Float32Array.of(-1.5, -0.5, -0.25)],
  metrics: { 'loss:sum': 0.75 },
};

describe('the forward_backward request', () => {
  it('the encoded forward_backward request equals the golden bytes', () => {
    assert.equal(hex(encodeForwardBackwardRequest(request)), goldenRequest);
  });

  it('the encoded forward_backward request has the config entry and forward_only at its end', () => {
    const bytes = encodeForwardBackwardRequest({
      ...request,
      config: { beta: 0.5 },
      isForwardOnly: true,
    });
    assert.equal(hex(bytes), goldenRequest + goldenBeta + goldenForwardOnly);
  });

  it('the forward_backward request is decoded from the golden bytes', () => {
    assert.deepEqual(decodeForwardBackwardRequest(bytesOf(goldenRequest)), request);
    const both = bytesOf(goldenRequest + goldenBeta + goldenForwardOnly);
    const read = decodeForwardBackwardRequest(both);
    assert.deepEqual(read, { ...request, config: { beta: 0.5 }, isForwardOnly: true });
  });

  it('the forward_backward request is decoded at any address, since a body may be a slice of a larger buffer', () => {
    const shifted = Buffer.from(`00${goldenRequest}`, 'hex').subarray(1);
    assert.deepEqual(decodeForwardBackwardRequest(shifted), request);
  });

  it('the decoder skips the fields of newer protocols', () => {
    const unknownField = 'a20103616263'; // number 20, bytes "abc"
    assert.deepEqual(decodeForwardBackwardRequest(bytesOf(goldenRequest + unknownField)), request);
  });

  it('the decoder reads several text chunks as one sequence, and int32, int64 and bfloat16 tensors', () => {
    const text = (...tokens: number[]) =>
      create(pb.ChunkSchema, {
        chunk: {
          case: 'encodedText',
          value: create(pb.EncodedTextChunkSchema, {
            tokens: new Uint8Array(Int32Array.from(tokens).buffer),
          }),
        },
      });
    const bytes = requestWith({
      modelInput: [text(5), text(6, 7)],
      lossFnInputs: {
        target_tokens: dense(Int32Array.of(6, 7, 8), pb.DType.DTYPE_INT32),
        advantages: dense(Uint16Array.of(0x3f80, 0xbf00, 0x4049), pb.DType.DTYPE_BFLOAT16),
        weights: dense(BigInt64Array.of(1n, 0n, -2n), pb.DType.DTYPE_INT64),
        mask: dense(Float32Array.of(1), pb.DType.DTYPE_FLOAT32), // no input of any loss
      },
    });
    assert.deepEqual(decodeForwardBackwardRequest(bytes).data, [
      {
        tokens: Int32Array.of(5, 6, 7),
        targetTokens: Int32Array.of(6, 7, 8),
        inputs: {
          weights: Float32Array.of(1, 0, -2),
          advantages: Float32Array.of(1, -0.5, 3.140625),
        },
      },
    ]);
  });

  const malformed: [string, Partial<Datum> | undefined, RegExp][] = [
    ['no datum', undefined, /there is no datum/],
    ['an empty sequence', { tokens: new Int32Array() }, /datum 0: it has no token/],
    ['ragged arrays', { targetTokens: Int32Array.of(1) }, /target_tokens has 1 elements for 3/],
    ['a NaN', { inputs: { weights: Float32Array.of(0, NaN, 1) } }, /weights\[1\] is NaN/],
    ['a negative token', { tokens: Int32Array.of(5, 6, -1) }, /tokens\[2\] is -1/],
  ];
  for (const [name, change, complaint] of malformed) {
    it(`the encoder refuses to send ${name}`, () => {
      const data = change === undefined ? [] : [{ ...request.data[0]!, ...change }];
      assert.throws(() => encodeForwardBackwardRequest({ ...request, data }), {
        name: 'PermanentError',
        message: complaint,
      });
    });
  }

  const unreadable: [string, Uint8Array, RegExp][] = [
    ['truncated bytes', bytesOf(goldenRequest.slice(0, 60)), /no ForwardBackwardRequest/],
    [
      'an unknown loss',
      bytesOf(goldenRequest.replace('63726f7373', '42726f7373')),
      /loss_fn is "Bross_entropy", expected importance_sampling/,
    ],
    ['no target_tokens', requestWith({ lossFnInputs: {} }), /target_tokens is missing/],
    [
      'a 2-D tensor',
      requestWith({
        lossFnInputs: {
          target_tokens: create(pb.TensorSchema, {
            ...dense(Int32Array.of(1, 2), pb.DType.DTYPE_INT32),
            shape: [1n, 2n],
          }),
        },
      }),
      /datum 0: target_tokens: shape \[1, 2\]/,
    ],
    [
      'a token beyond 32 bits',
      requestWith({
        lossFnInputs: { target_tokens: dense(BigInt64Array.of(2n ** 40n), pb.DType.DTYPE_INT64) },
      }),
      /element 0 does not fit 32 bits/,
    ],
    [
      'an image',
      requestWith({
        modelInput: [
          create(pb.ChunkSchema, {
            chunk: { case: 'image', value: create(pb.ImageChunkSchema, { format: 'png' }) },
          }),
        ],
      }),
      /model_input holds image/,
    ],
  ];
  for (const [name, bytes, complaint] of unreadable) {
    it(`the decoder refuses to read ${name}`, () => {
      assert.throws(
        () => decodeForwardBackwardRequest(bytes),
        (error: unknown) => error instanceof PermanentError && complaint.test(error.message),
      );
    });
  }
});

describe('the forward_backward result', () => {
  it('the forward_backward result equals the golden bytes in both directions', () => {
    assert.equal(hex(encodeForwardBackwardResult('cross_entropy', result)), goldenResult);
    assert.deepEqual(decodeForwardBackwardResult(bytesOf(goldenResult)), result);
  });

  it('the forward_backward result keeps datums of different lengths apart', () => {
    const ragged = {
      logprobs: [Float32Array.of(-1), Float32Array.of(-2, -3), Float32Array.of()],
      metrics: {},
    };
    assert.deepEqual(
      decodeForwardBackwardResult(encodeForwardBackwardResult('ppo', ragged)),
      ragged,
    );
  });

  it('the forward_backward result joins its records, of which a server starts a new one at another dtype', () => {
    const record = (data: Float32Array | Uint16Array, dtype: pb.DType) =>
      create(pb.ArrayRecordSchema, {
        numDatums: 1n,
        fields: {
          logprobs: create(pb.BatchedTensorSchema, {
            data: new Uint8Array(data.buffer),
            offsets: new Uint8Array(BigInt64Array.of(0n, BigInt(data.byteLength)).buffer),
            dtype,
          }),
        },
      });
    const bytes = toBinary(
      pb.ForwardBackwardOutputSchema,
      create(pb.ForwardBackwardOutputSchema, {
        lossFnOutputs: [
          record(Float32Array.of(-1, -2), pb.DType.DTYPE_FLOAT32),
          record(Uint16Array.of(0xbf80), pb.DType.DTYPE_BFLOAT16),
        ],
      }),
    );
    const read = decodeForwardBackwardResult(bytes).logprobs;
    assert.deepEqual(read, [Float32Array.of(-1, -2), Float32Array.of(-1)]);
  });

  it('the forward_backward result is refused if its offsets are outside the data', () => {
    const lying = bytesOf(goldenResult.replace('0c00000000000000', '1c00000000000000'));
    assert.throws(() => decodeForwardBackwardResult(lying), /offsets from 0 to 28 leave the data/);
  });
});

describe('the sample result', () => {
  const sampled = {
    sequences: [
      {
        tokens: Int32Array.of(11, 12),
        logprobs: Float32Array.of(-0.5, -0.25),
        stopReason: 'length' as const,
      },
    ],
    promptLogprobs: Float32Array.of(NaN, -2),
  };

  it('the sample result equals the golden bytes in both directions', () => {
    assert.equal(hex(encodeSampleResult(sampled)), goldenSample);
    assert.deepEqual(decodeSampleResult(bytesOf(goldenSample)), sampled);
  });

  it('the sample result distinguishes stop from length, and has prompt logprobs only if requested', () => {
    const stopped = { sequences: [{ ...sampled.sequences[0]!, stopReason: 'stop' as const }] };
    assert.deepEqual(decodeSampleResult(encodeSampleResult(stopped)), stopped);
  });

  it('the sample result has the most probable tokens of the prompt, and is refused if some are missing', () => {
    const promptTop = {
      k: 2,
      tokens: Int32Array.of(1, 2, 3, 4),
      logprobs: Float32Array.of(-1, -2, -3, -4),
    };
    const message = encodeSampleResult({ ...sampled, promptTop });
    assert.deepEqual(decodeSampleResult(message), { ...sampled, promptTop });
    const short = { ...promptTop, logprobs: Float32Array.of(-1) };
    assert.throws(
      () => decodeSampleResult(encodeSampleResult({ ...sampled, promptTop: short })),
      /the most probable tokens: 4 tokens and 1 logprobs for 2 positions of 2/,
    );
  });

  it('the sample result is refused if tokens lack their logprobs', () => {
    const bytes = toBinary(
      pb.SampleResponseSchema,
      create(pb.SampleResponseSchema, {
        sequences: [
          create(pb.SampledSequenceSchema, { tokens: new Uint8Array(Int32Array.of(1).buffer) }),
        ],
      }),
    );
    assert.throws(() => decodeSampleResult(bytes), /sequence 0: 0 logprobs for 1 tokens/);
  });
});

/** The golden request with other parts in its only datum. */
function requestWith(change: Partial<Pick<pb.Datum, 'modelInput' | 'lossFnInputs'>>): Uint8Array {
  const tokens = new Uint8Array(Int32Array.of(5, 6, 7).buffer);
  const text = create(pb.ChunkSchema, {
    chunk: { case: 'encodedText', value: create(pb.EncodedTextChunkSchema, { tokens }) },
  });
  const datum = create(pb.DatumSchema, {
    modelInput: [text],
    lossFnInputs: { target_tokens: dense(Int32Array.of(6, 7, 8), pb.DType.DTYPE_INT32) },
    ...change,
  });
  return toBinary(
    pb.ForwardBackwardRequestSchema,
    create(pb.ForwardBackwardRequestSchema, { modelId: 'm1', data: [datum], lossFn: 'ppo' }),
  );
}

function dense(array: { buffer: ArrayBufferLike; length: number }, dtype: pb.DType): pb.Tensor {
  return create(pb.TensorSchema, {
    encoding: { case: 'dense', value: new Uint8Array(array.buffer) },
    dtype,
    shape: [BigInt(array.length)],
  });
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString('hex');
}

function bytesOf(text: string): Uint8Array {
  return new Uint8Array(Buffer.from(text, 'hex'));
}

describe('loss settings since SDK 0.26', () => {
  const decoded = (lossFnConfigV2: Record<string, pb.LossConfigValue>) => {
    const message = fromBinary(
      pb.ForwardBackwardRequestSchema,
      encodeForwardBackwardRequest({ ...request, config: {} }),
    );
    Object.assign(message.lossFnConfigV2, lossFnConfigV2);
    return decodeForwardBackwardRequest(toBinary(pb.ForwardBackwardRequestSchema, message));
  };
  const setting = (value: pb.LossConfigValue['value']) =>
    create(pb.LossConfigValueSchema, { value });

  it('loss settings in the new field are read as numbers', () => {
    const { config } = decoded({ beta: setting({ case: 'number', value: 0.5 }) });
    assert.deepEqual(config, { beta: 0.5 });
  });

  it('loss settings in the new field are refused as text, by name and value', () => {
    assert.throws(() => decoded({ mode: setting({ case: 'text', value: 'fast' }) }), {
      name: 'PermanentError',
      message: 'loss_fn_config.mode is "fast": send a number, or leave it out',
    });
  });
});
