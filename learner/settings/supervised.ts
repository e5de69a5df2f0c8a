import { z } from 'zod';
import type { RunConfig } from '../../shared/run/run-config.js';
import { type AddIssue, int, string } from '../../shared/service/config-fields.js';
import { solverData } from '../../shared/tasks/examples/training-examples.js';
import { Advantages, Objective } from './objective.js';
import { Audit, Stops } from './run-control.js';
import { Batches } from './training.js';

/** What to train on instead of sampled answers, and how many times. */
export const SupervisedSettings = z.object({
  data: string
    .optional()
    .describe(
      "examples to train on by cross-entropy, instead of answers that the policy samples: solver, the solutions of the task's " +
        'problems, or a file *.jsonl with {"prompt", "answer"} or {"messages"} in each line.',
    ),
  batchExamples: int.positive().optional().describe('examples per step of --data; 64.'),
  batchTokens: int
    .positive()
    .optional()
    .describe(
      'instead of --batch-examples: as many examples per step as have at most N tokens, prompts included; at least one.',
    ),
  epochs: int.positive().optional().describe('end after N passes through --data.'),
  heldOutExamples: int
    .min(0)
    .optional()
    .describe(
      'examples of --data that only measure the loss; by default 128, and of a file at most one in twenty.',
    ),
});
export type SupervisedSettings = z.infer<typeof SupervisedSettings>;

const usualExamples = 64;

/** Settings of reinforcement learning, which mean nothing for examples. */
const ofRollouts = z.object({
  ...Objective.shape,
  ...Advantages.shape,
  ...Stops.shape,
  ...Audit.omit({ trainerClass: true }).shape,
  ...Batches.pick({
    groupsPerBatch: true,
    numSubsteps: true,
    maxStepsOffPolicy: true,
    sampleLag: true,
    windowPolicy: true,
    replayShare: true,
    curriculum: true,
  }).shape,
});

export function checkSupervised(
  settings: SupervisedSettings,
  addIssue: AddIssue<Record<string, unknown>>,
): void {
  const { data, batchExamples, batchTokens } = settings;
  if (data === undefined) {
    for (const key of Object.keys(SupervisedSettings.shape)) {
      if (settings[key as keyof SupervisedSettings] === undefined) continue;
      addIssue(key, 'it is for training on examples: add --data, or remove it');
    }
    return;
  }
  if (data !== solverData && !data.toLowerCase().endsWith('.jsonl')) {
    addIssue('data', 'expected solver, or a file that ends in .jsonl');
  }
  if (batchExamples !== undefined && batchTokens !== undefined) {
    addIssue('batchTokens', 'it is instead of --batch-examples; remove one of the two');
  }
  const given: Readonly<Record<string, unknown>> = settings;
  const usual: Readonly<Record<string, unknown>> = ofRollouts.parse({});
  for (const key of Object.keys(ofRollouts.shape)) {
    if (given[key] === usual[key] || given[key] === 0) continue; // 0 turns off what is off anyway
    addIssue(key, '--data trains on examples by cross-entropy, so it has no effect; remove it');
  }
}

type Supervised = NonNullable<RunConfig['supervised']>;

/** How many examples a step takes. */
export function batchOf({
  batchExamples = usualExamples,
  batchTokens,
}: Pick<SupervisedSettings, 'batchExamples' | 'batchTokens'>): Supervised['batch'] {
  return batchTokens === undefined
    ? { by: 'examples', size: batchExamples }
    : { by: 'tokens', size: batchTokens };
}

/** The part of the run's configuration that says what it trains on. @param examples none: it trains on sampled answers. */
export function supervisedOf(
  settings: SupervisedSettings,
  examples: { readonly digest: string; readonly heldOut: readonly unknown[] } | undefined,
): Pick<RunConfig, 'trainOn' | 'supervised'> {
  const { data } = settings;
  if (data === undefined || examples === undefined) return { trainOn: 'rollouts' };
  const { digest, heldOut } = examples;
  return {
    trainOn: 'examples',
    supervised: { data, digest, heldOut: heldOut.length, batch: batchOf(settings) },
  };
}
