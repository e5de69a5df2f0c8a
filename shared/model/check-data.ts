import { PermanentError } from '../base/errors.js';
import type { LossName } from '../rl/losses.js';
import { lossInputs } from './loss-graph.js';
import type { ModelConfig } from './model-config.js';
import type { TrainingDatum } from './training-datum.js';

/**
 * Makes sure that a loss can be computed of each datum.
 *
 * @throws {PermanentError} naming the datum that lacks an array of the loss, has one of another length,
 *   or has more tokens or others than the model takes.
 */
export function checkData(
  data: readonly TrainingDatum[],
  name: LossName,
  { vocabSize, maxPositions }: ModelConfig,
): void {
  data.forEach((datum, index) => {
    const length = datum.tokens.length;
    const refuse = (why: string): never => {
      throw new PermanentError(`${name}: data[${index}] ${why}`);
    };
    if (length === 0) refuse('has no tokens');
    if (length > maxPositions) refuse(`has ${length} tokens; the model takes ${maxPositions}`);
    if (datum.targetTokens.length !== length) {
      refuse(`has ${length} tokens but ${datum.targetTokens.length} target_tokens`);
    }
    for (const token of [...datum.tokens, ...datum.targetTokens]) {
      if (token < 0 || token >= vocabSize)
        refuse(`has token ${token} of a vocabulary of ${vocabSize}`);
    }
    for (const key of lossInputs[name].arrays) {
      const found = datum[key]?.length;
      if (found !== length) refuse(`needs ${length} ${key}, found ${found ?? 'none'}`);
    }
  });
}
