import { create, toBinary } from '@bufbuild/protobuf';
import { PermanentError } from '../base/errors.js';
import { parse, within } from './read-message.js';
import { bytesOf, readFloats, readIntegers } from './tensor-bytes.js';
import * as pb from './tinker_pb.js';
import type { SampledSequence, SampleResult, TopTokens } from './types.js';
import { resultLimits } from './wire-bounds.js';

export function encodeSampleResult(result: SampleResult): Uint8Array {
  const message = create(pb.SampleResponseSchema, {
    sequences: result.sequences.map((sequence) =>
      create(pb.SampledSequenceSchema, {
        stopReason: sequence.stopReason === 'length' ? pb.StopReason.LENGTH : pb.StopReason.STOP,
        tokens: bytesOf(sequence.tokens),
        logprobs: bytesOf(sequence.logprobs),
        ...(sequence.top && { topkSampledLogprobs: toTopMessage(sequence.top) }),
      }),
    ),
  });
  if (result.promptLogprobs) message.promptLogprobs = bytesOf(result.promptLogprobs);
  if (result.weightsPath !== undefined) message.weightsPath = result.weightsPath;
  if (result.promptTop) message.topkPromptLogprobs = toTopMessage(result.promptTop);
  return toBinary(pb.SampleResponseSchema, message);
}

function toTopMessage({ k, tokens, logprobs }: TopTokens): pb.TopkLogprobs {
  return create(pb.TopkLogprobsSchema, {
    tokenIds: bytesOf(tokens),
    logprobs: bytesOf(logprobs),
    k,
    length: tokens.length / k,
  });
}

/**
 * Decodes a result, without the most probable tokens of its sequences, for which our client never asks.
 *
 * @throws {PermanentError} if it is not such a message or a token lacks its logprob.
 */
export function decodeSampleResult(bytes: Uint8Array): SampleResult {
  const { sequences, promptLogprobs, topkPromptLogprobs } = parse(
    pb.SampleResponseSchema,
    bytes,
    resultLimits,
  );
  return {
    sequences: sequences.map((sequence, i) =>
      within(`sequence ${i}`, () => fromSequenceMessage(sequence)),
    ),
    ...(promptLogprobs && { promptLogprobs: readFloats(promptLogprobs, pb.DType.DTYPE_FLOAT32) }),
    ...(topkPromptLogprobs && {
      promptTop: within('the most probable tokens', () => fromTopMessage(topkPromptLogprobs)),
    }),
  };
}

function fromTopMessage({ k, length, tokenIds, logprobs: bytes }: pb.TopkLogprobs): TopTokens {
  const tokens = readIntegers(tokenIds, pb.DType.DTYPE_INT32);
  const logprobs = readFloats(bytes, pb.DType.DTYPE_FLOAT32);
  if (tokens.length !== k * length || logprobs.length !== tokens.length) {
    throw new PermanentError(
      `${tokens.length} tokens and ${logprobs.length} logprobs for ${length} positions of ${k}`,
    );
  }
  return { k, tokens, logprobs };
}

function fromSequenceMessage(sequence: pb.SampledSequence): SampledSequence {
  const tokens = readIntegers(sequence.tokens, pb.DType.DTYPE_INT32);
  const logprobs = readFloats(sequence.logprobs ?? new Uint8Array(), pb.DType.DTYPE_FLOAT32);
  if (logprobs.length !== tokens.length) {
    throw new PermanentError(`${logprobs.length} logprobs for ${tokens.length} tokens`);
  }
  switch (sequence.stopReason) {
    case pb.StopReason.STOP:
      return { tokens, logprobs, stopReason: 'stop' };
    case pb.StopReason.LENGTH:
      return { tokens, logprobs, stopReason: 'length' };
    default:
      throw new PermanentError(`unknown stop reason ${String(sequence.stopReason)}`);
  }
}
