import type { ActorLease } from '../../shared/wire/actor-lease.js';
import type { EvalResult } from '../../shared/wire/eval-result.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import type { Rollout, RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import { countdownSpec } from './countdown-task.js';

/** Messages that are valid except for the fields that a test sets. */

export function ticket(over: Partial<Ticket> = {}): Ticket {
  return {
    v: 1,
    ticketId: 't-0',
    order: 0,
    problemId: 'p-0',
    split: 'train',
    groupSize: 2,
    samplingParams: { temperature: 1, maxTokens: 16, seed: 7 },
    issuedAtVersion: 0,
    attempt: 0,
    ...over,
  };
}

/** One answer of `length` tokens: ids 1, 2, 3, … and falling logprobs, all by version 0. */
export function rollout(length = 3, over: Partial<Rollout> = {}): Rollout {
  return {
    tokens: Int32Array.from({ length }, (_, i) => i + 1),
    behaviorLogprobs: Float32Array.from({ length }, (_, i) => -((i % 8) + 1) / 8), // as an honest actor may claim
    versions: [[0, length]],
    stopReason: 'stop',
    ...over,
  };
}

/** A group with the number of rollouts of its ticket, each of `length` tokens. */
export function rolloutGroup(over: Partial<RolloutGroup> = {}, length = 3): RolloutGroup {
  const forTicket = over.ticket ?? ticket();
  return {
    v: 1,
    ticket: forTicket,
    actor: 'actor-0',
    promptTokens: Int32Array.of(5, 6, 7),
    rollouts: Array.from({ length: forTicket.groupSize }, () => rollout(length)),
    startedAt: 1_000,
    finishedAt: 2_000,
    ...over,
  };
}

export function scoredGroup(over: Partial<ScoredGroup> = {}): ScoredGroup {
  const group = over.group ?? rolloutGroup();
  return {
    v: 1,
    group,
    scores: group.rollouts.map(() => ({
      reward: 1,
      exactReward: '1',
      hasFormat: true,
      isValid: true,
      isCorrect: true,
      reason: 'correct',
    })),
    scorer: 'reward-0',
    scoredAt: 3_000,
    ...over,
  };
}

export function checkpoint(over: Partial<Checkpoint> = {}): Checkpoint {
  return {
    v: 1,
    step: 3,
    version: 3,
    statePath: 'tinker://run/weights/step-3',
    nextOrder: 12,
    consumedBelow: 9,
    consumedAbove: [10],
    counts: {
      issued: 12,
      trained: 9,
      skippedZeroVariance: 1,
      stale: 0,
      dead: 0,
      outstanding: 2,
    },
    progress: 0.25,
    savedAt: 4_000,
    ...over,
  };
}

export function actorLease(over: Partial<ActorLease> = {}): ActorLease {
  return {
    v: 1,
    actor: 'actor-0',
    version: 0,
    sampler: 'onnx',
    groups: 0,
    inFlight: 0,
    limit: 8,
    idleSeconds: { ticket: 0, policy: 0, publish: 0 },
    lastSeenAt: 1_000,
    ...over,
  };
}

export function runConfig(over: Partial<RunConfig> = {}): RunConfig {
  return {
    v: 2,
    run: 'test',
    seed: 1,
    model: { name: 'tiny', digest: 'd' },
    task: countdownSpec(),
    datasetDigest: 'd',
    sampling: { temperature: 1, maxTokens: 16 },
    groupSize: 4,
    replayShare: 0,
    groupsPerBatch: 2,
    numSubsteps: 1,
    numMinibatches: 1,
    maxStepsOffPolicy: 1,
    sampleLag: 0,
    windowPolicy: 'wait',
    lora: { rank: 4, seed: 0 },
    loss: { name: 'cispo', config: { clip_low_threshold: 0, clip_high_threshold: 4 } },
    correction: { weights: { kind: 'none' }, mask: { kind: 'none' } },
    advantage: 'mean_centred',
    normalization: 'none',
    extraTerms: {
      lengthPenalty: { weight: 0, freeTokens: 0 },
      klPenalty: 0,
      entropyBonus: { coefficient: 0 },
    },
    zeroVariance: 'refill',
    trainOn: 'rollouts',
    adam: {
      learningRate: 1e-3,
      beta1: 0.9,
      beta2: 0.95,
      eps: 1e-8,
      weightDecay: 0,
      gradClipNorm: 1,
    },
    schedule: { kind: 'constant', warmupSteps: 0, finalShare: 1 },
    ...over,
  };
}

/** A result of two problems; one is answered right greedily and in one of two samples. */
export function evalResult(over: Partial<EvalResult> = {}): EvalResult {
  const rates = { problems: 2, sampled: 0.25, greedy: 0.5, passAt: { '1': 0.25, '2': 0.5 } };
  return {
    version: 0,
    lag: 0,
    seconds: 1.5,
    temperature: 1,
    samples: 2,
    ...rates,
    byDifficulty: [{ difficulty: '3 numbers', ...rates }],
    lost: 0,
    answers: {
      sampled: { correct: [1, 0], total: [2, 2] },
      greedy: { correct: [1, 0], total: [1, 1] },
    },
    ...over,
  };
}
