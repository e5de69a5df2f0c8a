import type { GeneratorSpec } from './spec.js';

/**
 * The problems that the embedded model knows and that `npm start` trains on by default. Its first
 * `testSize` problems are held out: neither pre-training nor RL ever sees them.
 *
 * Problems are drawn without repeats, and the ranges hold some 42,000, so the later ones are ever
 * rarer kinds: a train split of 30,000 would be another distribution than the held-out problems
 * (a base model that solved 28 % of those solved 16 % of the last).
 */
export const embeddedDataset: GeneratorSpec = {
  kind: 'generator',
  seed: 0,
  numbers: [3],
  maxNumber: 30,
  maxTarget: 100,
  trainSize: 8_192,
  testSize: 1_024,
};
