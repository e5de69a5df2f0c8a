import { createRandom } from '../../shared/base/random.js';
import type { AdvantageKind, Normalization } from '../../shared/rl/objective.js';

/** The settings of a round's run that depend on the seed. */
export interface Shape {
  readonly groupSize: number;
  readonly groupsPerBatch: number;
  readonly numSubsteps: number;
  readonly numMinibatches: number; // per substep
  readonly maxStepsOffPolicy: number;
  readonly loraRank: number;
  readonly advantage: Exclude<AdvantageKind, 'batch_std'>;
  readonly normalization: Normalization;
  readonly evalProblems: number; // 0: no evaluations
  readonly evalSamples: number;
  readonly evalEveryVersions: number;
  /** Whether NATS requires keys and has an account for each actor. */
  readonly withKeys: boolean;
  /** The protocol of the server with which one of the actors samples. */
  readonly engine: 'vllm' | 'sglang';
}

/** Groups per batch, substeps, minibatches per substep. */
const batches = [
  [2, 1, 1],
  [2, 1, 2],
  [2, 2, 1],
  [4, 2, 2],
] as const;
const advantages = ['mean_centred', 'mean_std', 'leave_one_out', 'maxrl'] as const;
const normalizations = ['none', 'token', 'sequence', 'group', 'constant'] as const;

/** Deterministic by seed; each choice is independent. */
export function shapeOf(seed: number): Shape {
  const random = createRandom(`shape ${seed}`);
  const [groupsPerBatch, numSubsteps, numMinibatches] = batches[random.int(batches.length)]!;
  const hasEvaluations = random.int(2) === 0;
  return {
    groupSize: 4,
    ...{ groupsPerBatch, numSubsteps, numMinibatches },
    maxStepsOffPolicy: 2,
    loraRank: 2,
    advantage: advantages[random.int(advantages.length)]!,
    normalization: normalizations[random.int(normalizations.length)]!,
    evalProblems: hasEvaluations ? 3 : 0,
    evalSamples: 2,
    evalEveryVersions: 5,
    withKeys: random.int(2) === 0,
    engine: random.int(2) === 0 ? 'vllm' : 'sglang',
  };
}

/** The shape as flags of the learner. */
export function learnerFlags(shape: Shape): string[] {
  const flags = {
    'group-size': shape.groupSize,
    'groups-per-batch': shape.groupsPerBatch,
    'num-substeps': shape.numSubsteps,
    'num-minibatches': shape.numMinibatches,
    'max-steps-off-policy': shape.maxStepsOffPolicy,
    'lora-rank': shape.loraRank,
    advantage: shape.advantage,
    normalization: shape.normalization,
    'eval-problems': shape.evalProblems,
    'eval-samples': shape.evalSamples,
    'eval-every-versions': shape.evalEveryVersions,
  };
  return Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
}
