import type { Datum } from '../rl/datum.js';
import type { ServedLoss } from '../rl/gspo.js';

/** One forward_backward request, as it travels: at most a chunk of what the caller asked for. */
export interface ForwardBackwardRequest {
  readonly modelId: string;
  readonly seqId: number; // from 1; 0 when the sender left it out
  readonly data: readonly Datum[];
  readonly loss: ServedLoss;
  readonly config: Readonly<Record<string, number>>; // thresholds, beta, temperature
  readonly isForwardOnly: boolean;
  readonly custom?: { readonly lossId: string; readonly inputs: readonly CustomInputs[] }; // of a custom loss; for each datum
}

/** What a custom loss reads of a datum, by name: arrays of rank 0 to 2. */
export type CustomInputs = Readonly<Record<string, CustomInput>>;
export interface CustomInput {
  readonly shape: readonly number[];
  readonly data: Float32Array | Int32Array; // row-major
}

export interface ForwardBackwardResult {
  readonly logprobs: Float32Array[]; // a datum each, [N]: of the targets, before any update
  readonly metrics: Record<string, number>; // named `name:reduction`, as in `loss:sum`
}

export interface SampledSequence {
  readonly tokens: Int32Array; // [T], the stop token included when `stopReason` is stop
  readonly logprobs: Float32Array; // [T], of the distribution that each token was drawn from
  readonly stopReason: 'stop' | 'length';
  readonly top?: TopTokens; // of T positions
  readonly promptLogprobs?: Float32Array; // [P], where a caller asked for them beside the answers
}

/** The k most probable tokens at each of n positions, the most probable first. */
export interface TopTokens {
  readonly k: number;
  readonly tokens: Int32Array; // [n, k]
  readonly logprobs: Float32Array; // [n, k]; {@link noLogprob} where there is none
}

/** In {@link TopTokens}, with token 0: this position was not scored. */
export const noLogprob = -99_999;

export interface SampleResult {
  readonly sequences: SampledSequence[];
  readonly promptLogprobs?: Float32Array; // [P], NaN where there is none, as for the first token
  readonly promptTop?: TopTokens; // of P positions
  readonly weightsPath?: string; // tinker path of the weights that all of it comes from, of an inflight sampler
}
