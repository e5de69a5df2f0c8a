import { describe, it } from 'node:test';
import fc from 'fast-check';
import { PermanentError } from '../../../shared/base/errors.js';
import {
  decodeForwardBackwardRequest,
  decodeForwardBackwardResult,
  encodeForwardBackwardRequest,
  encodeForwardBackwardResult,
} from '../../../shared/tinker/codec.js';
import { decodeSampleResult, encodeSampleResult } from '../../../shared/tinker/sample-codec.js';
import { fuzzRuns, mutationsOf, refusesOnly } from '../../support/mutations.js';

const tokens = Int32Array.of(1, 2, 3);
const floats = Float32Array.of(-1, -0.5, 0);
const good = [
  encodeForwardBackwardRequest({
    modelId: 'm',
    seqId: 1,
    data: [{ tokens, targetTokens: tokens, inputs: { logprobs: floats, advantages: floats } }],
    loss: 'cispo',
    config: { temperature: 1 },
    isForwardOnly: false,
  }),
  encodeForwardBackwardResult('cispo', { logprobs: [floats, floats], metrics: { 'loss:sum': 1 } }),
  encodeSampleResult({ sequences: [{ tokens, logprobs: floats, stopReason: 'stop' }] }),
];

describe('a protobuf body of any bytes', () => {
  for (const [name, read] of Object.entries({
    decodeForwardBackwardRequest,
    decodeForwardBackwardResult,
    decodeSampleResult,
  })) {
    it(`any bytes decode to a message or throw a PermanentError: ${name}`, () => {
      fc.assert(
        fc.property(mutationsOf(good), (bytes) => {
          refusesOnly([PermanentError], () => read(bytes));
        }),
        { numRuns: fuzzRuns },
      );
    });
  }
});
