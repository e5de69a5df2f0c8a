import { z } from 'zod';
import { checkTask } from '../shared/tasks/registry.js';
import type { RunConfig } from '../shared/run/run-config.js';
import { Audit } from './settings/audit.js';
import { Advantages, checkAdvantages, extraTerms } from './settings/advantages.js';
import { Batches, checkBatches } from './settings/batches.js';
import { Connections } from './settings/connections.js';
import { Duration } from './settings/duration.js';
import { checkEvaluation, Evaluation } from './settings/evaluation.js';
import { checkObjective, correctionOf, lossConfig, Objective } from './settings/objective.js';
import { checkOptimizer, Optimizer, scheduleOf } from './settings/optimizer.js';
import { Stops } from './settings/stops.js';
import { Task } from './settings/task.js';

/** What to train and where to find things. What to train becomes the run's configuration in NATS. */
export const LearnerConfig = z
  .object({
    ...Connections.shape,
    ...Duration.shape,
    ...Evaluation.shape,
    ...Task.shape,
    ...Batches.shape,
    ...Objective.shape,
    ...Advantages.shape,
    ...Optimizer.shape,
    ...Stops.shape,
    ...Audit.shape,
  })
  .check(({ value, issues }) => {
    const complain = (key: string, message: string): void => {
      issues.push({ code: 'custom', input: value, path: [key], message });
    };
    checkTask(value, complain);
    checkBatches(value, complain);
    checkObjective(value, complain);
    checkAdvantages(value, complain);
    checkOptimizer(value, complain);
    checkEvaluation(value, complain);
  });
export type LearnerConfig = z.infer<typeof LearnerConfig>;

/** The run's configuration, with what only the files themselves tell. */
export function runConfig(
  config: LearnerConfig,
  found: Pick<RunConfig, 'model' | 'task' | 'datasetDigest'>,
): RunConfig {
  const { beta1, beta2, eps, learningRate, weightDecay, gradClipNorm } = config;
  return {
    v: 2,
    run: config.run,
    seed: config.seed,
    ...found,
    sampling: { temperature: config.temperature, maxTokens: config.maxTokens },
    groupSize: config.groupSize,
    replayShare: config.replayShare,
    groupsPerBatch: config.groupsPerBatch,
    numSubsteps: config.numSubsteps,
    numMinibatches: config.numMinibatches,
    maxStepsOffPolicy: config.maxStepsOffPolicy,
    sampleLag: config.sampleLag,
    windowPolicy: config.windowPolicy,
    lora: { rank: config.loraRank, seed: config.seed },
    loss: { name: config.loss, config: lossConfig(config) },
    correction: correctionOf(config),
    advantage: config.advantage,
    normalization: config.normalization,
    extraTerms: extraTerms(config),
    zeroVariance: config.zeroVariance,
    adam: { learningRate, beta1, beta2, eps, weightDecay, gradClipNorm },
    schedule: scheduleOf(config),
  };
}

/**
 * The paths at which a stored configuration and this one differ, each with both values. A run keeps
 * the configuration that it began with.
 */
export function configDifferences(stored: RunConfig, ours: RunConfig): string[] {
  const flatten = (value: unknown, path: string): [string, string][] =>
    typeof value === 'object' && value !== null
      ? Object.entries(value).flatMap(([key, part]) => flatten(part, path ? `${path}.${key}` : key))
      : [[path, JSON.stringify(value)]];
  const theirs = new Map(flatten(stored, ''));
  const mine = new Map(flatten(ours, ''));
  return [...new Set([...theirs.keys(), ...mine.keys()])]
    .filter((path) => theirs.get(path) !== mine.get(path))
    .map(
      (path) =>
        `${path}: stored ${theirs.get(path) ?? 'none'}, asked for ${mine.get(path) ?? 'none'}`,
    );
}
