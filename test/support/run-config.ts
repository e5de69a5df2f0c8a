import type { RunConfig } from '../../shared/wire/run-config.js';

/** A small run on generated problems, valid but for what the test names. */
export function runConfig(named: Partial<RunConfig> = {}): RunConfig {
  return {
    v: 1,
    run: 'test',
    seed: 0,
    model: { name: 'tiny', digest: '0'.repeat(64) },
    dataset: {
      kind: 'generator',
      seed: 0,
      numbers: [3],
      maxNumber: 20,
      maxTarget: 100,
      trainSize: 50,
      testSize: 10,
    },
    datasetDigest: '0'.repeat(64),
    promptStyle: 'compact',
    reward: { formatScore: 0, shaping: 'none' },
    sampling: { temperature: 1, maxTokens: 20 },
    groupSize: 4,
    groupsPerBatch: 2,
    numMinibatches: 1,
    maxStepsOffPolicy: 1,
    lora: { rank: 4, seed: 0 },
    loss: { name: 'cispo', config: { clip_low_threshold: 0, clip_high_threshold: 4 } },
    advantage: 'mean_centred',
    normalization: 'none',
    adam: {
      learningRate: 1e-3,
      beta1: 0.9,
      beta2: 0.95,
      eps: 1e-8,
      weightDecay: 0,
      gradClipNorm: 0,
    },
    ...named,
  };
}
