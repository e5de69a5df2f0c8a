import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { create, toBinary } from '@bufbuild/protobuf';
import { PermanentError } from '../../../shared/base/errors.js';
import {
  decodeForwardBackwardRequest,
  decodeForwardBackwardResult,
  encodeForwardBackwardRequest,
} from '../../../shared/tinker/codec.js';
import { decodeSampleResult } from '../../../shared/tinker/sample-codec.js';
import * as pb from '../../../shared/tinker/tinker_pb.js';
import {
  assertWithin,
  readEnvelope,
  requestLimits,
  resultLimits,
} from '../../../shared/tinker/wire-bounds.js';
import { sampleRequest } from '../../support/sample-request.js';

/** A length-delimited field. */
function block(number: number, content: Uint8Array): Buffer {
  const length: number[] = [];
  for (let rest = content.length; ; rest >>>= 7) {
    length.push(rest > 127 ? (rest & 127) | 128 : rest);
    if (rest <= 127) break;
  }
  return Buffer.concat([Buffer.from([(number << 3) | 2, ...length]), content]);
}
const times = (count: number, part: Uint8Array) => Buffer.alloc(count * part.length, part);
const nothing = new Uint8Array();

/** For each repeated part of a request, a message that has it so often. */
const requests: Readonly<Record<string, (count: number) => Uint8Array>> = {
  'ForwardBackwardRequest.data': (count) => times(count, block(3, nothing)),
  'ForwardBackwardRequest.loss_fn_config': (count) => times(count, block(5, nothing)),
  'ForwardBackwardRequest.loss_fn_config_v2': (count) => times(count, block(7, nothing)),
  'Datum.model_input': (count) => block(3, times(count, block(1, nothing))),
  'Datum.loss_fn_inputs': (count) => block(3, times(count, block(2, nothing))),
  'Tensor.shape': (count) => tensor(block(4, new Uint8Array(count).fill(1))),
};
function tensor(content: Uint8Array): Uint8Array {
  return block(3, block(2, Buffer.concat([block(1, Buffer.from('weights')), block(2, content)])));
}

describe('the bounds on a forward_backward request', () => {
  it('every repeated part of a forward_backward request has a bound', () => {
    assert.deepEqual(Object.keys(requests).sort(), Object.keys(requestLimits.parts).sort());
  });

  for (const [part, message] of Object.entries(requests)) {
    const limit = requestLimits.parts[part]!;
    it(`a request with ${limit + 1} ${part} is refused with the remedy`, () => {
      const check = (count: number) => {
        assertWithin(pb.ForwardBackwardRequestSchema, message(count), requestLimits);
      };
      check(limit);
      assert.throws(
        () => {
          check(limit + 1);
        },
        {
          name: 'TooManyParts',
          message: `it holds more than ${limit} ${part}; send them in several requests, of 1024 datums each`,
        },
      );
    });
  }

  it('a request is refused before it is decoded: bytes after the first part too many are not read', () => {
    const many = times(16_385, block(3, nothing));
    const garbage = Buffer.alloc(1_000, 0xff);
    assert.throws(
      () => decodeForwardBackwardRequest(Buffer.concat([many, garbage])),
      /bytes are too much for a ForwardBackwardRequest: it holds more than 16384 ForwardBackwardRequest\.data/,
    );
  });

  it('a request is refused for its total number of fields, wherever they are and known or not', () => {
    const two = times(2_000_001, Uint8Array.of(0x78, 0));
    assert.throws(() => decodeForwardBackwardRequest(two), /more than 2000000 fields/);
    assert.throws(() => decodeForwardBackwardRequest(tensor(two)), /more than 2000000 fields/);
    const inConfig = block(5, two);
    assert.throws(() => decodeForwardBackwardRequest(inConfig), /more than 2000000 fields/);
  });

  it('the shapes of a request are counted one by one as well as packed', () => {
    const unpacked = tensor(times(131_073, Uint8Array.of(0x20, 1)));
    assert.throws(() => decodeForwardBackwardRequest(unpacked), /131072 Tensor\.shape/);
  });

  it('the model and sequence id of a request are read without its data', () => {
    const rest = create(pb.ForwardBackwardRequestSchema, { modelId: 'modèle', seqId: 70_000 });
    const ids = toBinary(pb.ForwardBackwardRequestSchema, rest);
    const data = times(100_000, block(3, nothing));
    const expected = { modelId: 'modèle', seqId: 70_000 };
    assert.deepEqual(readEnvelope(Buffer.concat([ids, data])), expected);
    assert.deepEqual(readEnvelope(Buffer.concat([data, ids])), expected);
    assert.deepEqual(readEnvelope(new Uint8Array()), { modelId: '', seqId: 0 });
    assert.throws(() => readEnvelope(Uint8Array.of(0x0a, 5, 1)), /ends inside a value/);
  });
});

describe('the bounds on an answer of a server', () => {
  const results = {
    'SampleResponse.sequences': [decodeSampleResult, block(1, nothing)],
    'ForwardBackwardOutput.loss_fn_outputs': [decodeForwardBackwardResult, block(2, nothing)],
    'ForwardBackwardOutput.metrics': [decodeForwardBackwardResult, block(3, nothing)],
  } as const;
  for (const [part, [decode, one]] of Object.entries(results)) {
    it(`an answer with more ${part} than any request asks for is refused`, () => {
      const limit = resultLimits.parts[part]!;
      assert.throws(() => decode(times(limit + 1, one)), {
        name: 'PermanentError',
        message: new RegExp(`more than ${limit} ${part}; no request asks for so much`),
      });
    });
  }

  it('an answer whose few bytes claim too many datums in all is refused', () => {
    const claims = block(2, Uint8Array.of(0x18, 0xff, 0xff, 3)); // 65,535 without a byte of their own
    assert.equal(decodeForwardBackwardResult(claims).logprobs.length, 65_535);
    assert.throws(
      () => decodeForwardBackwardResult(Buffer.concat([claims, claims])),
      /record 1: 65535 datums, more than the remaining 1 of 65536/,
    );
    const offsets = block(2, new Uint8Array(8 * 70_000));
    const entry = Buffer.concat([block(1, Buffer.from('logprobs')), block(2, offsets)]);
    assert.throws(
      () => decodeForwardBackwardResult(block(2, block(2, entry))),
      /69999 datums, more than the remaining 65536 of 65536/,
    );
  });
});

describe('the check of a message against its bounds', () => {
  it('the check accepts the requests that clients send, with the largest number of datums', () => {
    const [datum] = sampleRequest.data;
    const request = { ...sampleRequest, data: Array<typeof datum>(1_024).fill(datum) as never };
    const bytes = encodeForwardBackwardRequest(request);
    assert.equal(decodeForwardBackwardRequest(bytes).data.length, 1_024);
  });

  const malformed: [what: string, bytes: Uint8Array, complaint: RegExp][] = [
    ['a number without an end', Uint8Array.of(0x10, 0xff), /ends inside a number at byte 2/],
    ['a number of 11 bytes', Buffer.alloc(12, 0xff), /more than 10 bytes/],
    ['a block that is longer than the rest', Uint8Array.of(0x1a, 9, 0), /ends inside a value/],
    ['a group, which this API does not have', Uint8Array.of(0x1b, 0x1c), /wire type 3/],
    ['a part that ends beyond the one around it', block(3, Uint8Array.of(0x0a, 1)), /ends inside/],
  ];
  for (const [what, bytes, complaint] of malformed) {
    it(`the check refuses ${what} and names the place`, () => {
      assert.throws(
        () => {
          assertWithin(pb.ForwardBackwardRequestSchema, bytes, requestLimits);
        },
        (error: unknown) => error instanceof PermanentError && complaint.test(error.message),
      );
    });
  }
});
