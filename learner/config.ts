import { z } from 'zod';
import { checkTask } from '../shared/tasks/registry.js';
import type { RunConfig } from '../shared/run/run-config.js';
import {
  adam,
  advantages,
  batching,
  type Fitted,
  offPolicyFields,
  sampling,
  valuesOf,
} from '../shared/run/hyperparameters.js';
import { Connections } from './settings/connections.js';
import {
  Advantages,
  checkAdvantages,
  checkObjective,
  correctionOf,
  extraTerms,
  lossConfig,
  Objective,
} from './settings/objective.js';
import { Adapters, checkAdapters } from './settings/adapters.js';
import { checkSupervised, supervisedOf, SupervisedSettings } from './settings/supervised.js';
import {
  Audit,
  checkAudit,
  checkEvaluation,
  Duration,
  Evaluation,
  Stops,
} from './settings/run-control.js';
import { Prices } from './settings/prices.js';
import {
  Batches,
  checkBatches,
  checkOptimizer,
  Optimizer,
  scheduleOf,
  startOf,
  Task,
} from './settings/training.js';

/** The learner's settings. Those that define what is trained become the run's configuration in NATS. */
export const LearnerConfig = z
  .object({
    ...Connections.shape,
    ...Adapters.shape,
    ...Duration.shape,
    ...Evaluation.shape,
    ...Task.shape,
    ...Batches.shape,
    ...Objective.shape,
    ...Advantages.shape,
    ...Optimizer.shape,
    ...SupervisedSettings.shape,
    ...Stops.shape,
    ...Audit.shape,
    ...Prices.shape,
  })
  .check(({ value, issues }) => {
    const addIssue = (key: string, message: string): void => {
      issues.push({ code: 'custom', input: value, path: [key], message });
    };
    checkAdapters(value, addIssue);
    checkTask(value, addIssue);
    if (value.data === undefined) checkBatches(value, addIssue);
    checkObjective(value, addIssue);
    checkSupervised(value, addIssue);
    checkAdvantages(value, addIssue);
    checkOptimizer(value, addIssue);
    checkEvaluation(value, addIssue);
    checkAudit(value, addIssue);
  });
export type LearnerConfig = z.infer<typeof LearnerConfig>;

/** The settings with the hyperparameters that fit the model, from `fitToModel`. */
export type FittedConfig = LearnerConfig & Fitted;

/** The run's configuration: the settings, and what was read from the model and the dataset. */
export function runConfig(
  config: FittedConfig,
  {
    examples,
    ...found
  }: Pick<RunConfig, 'model' | 'task' | 'datasetDigest'> & {
    readonly examples?: Parameters<typeof supervisedOf>[1];
  },
): RunConfig {
  const offPolicy = offPolicyFields(config.maxStepsOffPolicy);
  return {
    v: 2,
    run: config.run,
    seed: config.seed,
    ...found,
    sampling: valuesOf(sampling, config),
    ...valuesOf(batching, { ...config, ...offPolicy }),
    ...offPolicy,
    ...(config.curriculum === 'signal' && { curriculum: config.curriculum }),
    ...supervisedOf(config, examples),
    ...startOf(config),
    lora: { rank: config.loraRank, seed: config.seed },
    loss: lossOf(config),
    correction: correctionOf(config),
    ...valuesOf(advantages, config),
    ...(config.maxrlUntil !== undefined && { maxrlUntil: config.maxrlUntil }),
    extraTerms: extraTerms(config),
    adam: valuesOf(adam, config),
    schedule: scheduleOf(config),
  };
}

/** The loss of examples is always the cross-entropy. */
function lossOf(config: FittedConfig): RunConfig['loss'] {
  const loss = config.data === undefined ? config.loss : 'cross_entropy';
  return { name: loss, config: lossConfig({ ...config, loss }) };
}

/**
 * The paths at which a stored configuration and ours differ, each with both values. A run keeps the
 * configuration it started with.
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
