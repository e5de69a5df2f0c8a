import type { GroupRequest, PolicyChoice, SampledRollout } from './sampler.js';

/** What the decoder's worker thread is started with. */
export interface DecoderWorkerData {
  readonly modelPath: string;
  readonly threads: number;
}

/** A LoRA adapter on its way into the worker. */
export interface AdapterFile {
  readonly version: number;
  readonly safetensors: Uint8Array;
  readonly rank: number;
  readonly alpha: number;
}

/** What the worker is told. */
export type ToDecoder =
  | { readonly kind: 'load'; readonly adapter: AdapterFile }
  | { readonly kind: 'drop'; readonly version: number }
  | {
      readonly kind: 'sample';
      readonly id: number;
      readonly request: GroupRequest;
      readonly policy: PolicyChoice;
    }
  | { readonly kind: 'abort'; readonly id: number };

/** What the worker answers. */
export type FromDecoder =
  | { readonly kind: 'ready' }
  | { readonly kind: 'broken'; readonly failure: Failure } // it has no decoder and never will
  | { readonly kind: 'loaded'; readonly version: number }
  | { readonly kind: 'refused'; readonly version: number; readonly failure: Failure }
  | { readonly kind: 'alive' } // it has drawn tokens lately
  | { readonly kind: 'draws'; readonly ids: readonly number[]; readonly version: number }
  | { readonly kind: 'abandoned'; readonly id: number; readonly tokens: number }
  | { readonly kind: 'sampled'; readonly id: number; readonly rollouts: SampledRollout[] }
  | { readonly kind: 'failed'; readonly id: number; readonly failure: Failure };

/** An error on its way out of the worker: a structured clone keeps no class. */
export interface Failure {
  readonly kind: 'user' | 'permanent' | 'other';
  readonly message: string;
}
