import type { ForwardBackwardRequest } from '../../shared/tinker/types.js';

/** The sample request of the protocol reference, in protobuf and in JSON. */
export const sampleRequest: ForwardBackwardRequest = {
  modelId: 'm1',
  seqId: 1,
  data: [
    {
      tokens: Int32Array.of(5, 6, 7),
      targetTokens: Int32Array.of(6, 7, 8),
      inputs: { weights: Float32Array.of(0, 1, 1) },
    },
  ],
  loss: 'cross_entropy',
  config: {},
  isForwardOnly: false,
};
