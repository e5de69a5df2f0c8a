import { PermanentError } from '../shared/base/errors.js';
import type { ModelDirectory } from '../shared/model/model-directory.js';
import { notFound } from './http-api.js';

/** Below it, logits divided by it would not be finite in float32. */
export const leastTemperature = 1e-6;

/** The only base model of this backend, and the name by which clients request it. */
export interface ServedModel {
  readonly name: string;
  readonly directory: ModelDirectory;
  readonly loraAlpha?: number | undefined; // of new adapters, whose update is alpha / rank · B·A; absent: twice the rank
}

/** @throws {ApiError} 404 with the name of the served model. */
export function assertServed(model: ServedModel, baseModel: string): void {
  if (baseModel === model.name) return;
  throw notFound(
    `base model ${JSON.stringify(baseModel)} is not served; use ${JSON.stringify(model.name)}`,
  );
}

/**
 * @param tokens [N]
 * @throws {PermanentError} when they exceed the model's vocabulary or its positions.
 */
export function assertFits(model: ServedModel, tokens: Int32Array, what: string): void {
  const { vocabSize, maxPositions } = model.directory.config;
  if (tokens.length > maxPositions) {
    throw new PermanentError(
      `${what} has ${tokens.length} tokens; the model takes ${maxPositions}`,
    );
  }
  const bad = tokens.findIndex((token) => token < 0 || token >= vocabSize);
  if (bad !== -1) {
    throw new PermanentError(
      `${what} has token ${tokens[bad]!} at ${bad}; the vocabulary has ${vocabSize}`,
    );
  }
}
