import type { Dim } from './graph/graph.js';

/** The shape of the tokens that pass through the model: `rows` = batch · time tokens in all. */
export interface TokenDims {
  readonly batch: Dim;
  readonly time: Dim;
  readonly rows: Dim;
}
