import type { GeneratorSpec } from '../countdown/generator.js';

/**
 * The problems that the embedded model knows and that `npm start` trains on by default. Its first
 * `testSize` problems are held out: neither pre-training nor RL ever sees them.
 */
export const embeddedDataset: GeneratorSpec = {
  kind: 'generator',
  seed: 0,
  numbers: [3],
  maxNumber: 30,
  maxTarget: 100,
  trainSize: 30_000,
  testSize: 1_024,
};
