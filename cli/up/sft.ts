import type { z } from 'zod';
import { describeFlags } from '../../shared/service/config-help.js';
import type { Environment } from '../../shared/service/config.js';
import { adam } from '../../shared/run/hyperparameters.js';
import { solverData } from '../../shared/tasks/examples/training-examples.js';
import { TaskSettings } from '../../shared/tasks/registry.js';
import { services } from '../services.js';
import { up } from './up.js';
import type { StartCommand } from './load-up-config.js';
import { ofCost, runSettings, UpConfig, upService } from './up-config.js';

/** The learner's settings that mean something for training on examples. */
const settings = new Set<string>([
  ...Object.keys(TaskSettings.shape),
  ...['data', 'batchExamples', 'batchTokens', 'epochs', 'heldOutExamples', 'numMinibatches'],
  ...Object.keys(adam),
  ...['loraRank', 'from', 'schedule', 'warmupSteps', 'finalRateShare'],
  ...['maxSteps', 'maxMinutes', 'checkpointEverySteps', 'keepEverySteps'],
  ...['evalProblems', 'evalSamples', 'evalEveryVersions', 'temperature', 'maxTokens', 'groupSize'],
  ...['adapterStore', 'checkpointDir', 'trainerClass'],
  ...['seed', 'leaseSeconds', 'stopPatienceSeconds', 'streamReplicas'],
  ...ofCost,
]);

/** The launcher's flags that mean nothing where no training answers are sampled. */
const ofSampling = new Set<string>([
  'evalActors',
  'inFlightUpdates',
  'onAdoption',
  'requireCanary',
]);

/** `offbeat up` on examples: with the same services, files and flags, as far as they mean something. */
export const sftCommand: StartCommand = {
  offers: (key) => settings.has(key) || (key in UpConfig.shape && !ofSampling.has(key)),
  defaults: { data: solverData },
  trainsOnExamples: true,
};

const offered = <Shape extends object>(shape: Shape) =>
  Object.fromEntries(Object.entries(shape).filter(([key]) => sftCommand.offers(key)));

/** Its flags of the launcher. */
export const sftShape: z.core.$ZodShape = offered(UpConfig.shape);

/** What `offbeat sft` does, and its flags. */
export async function sftHelp(): Promise<string> {
  const choices = offered(runSettings(await services.learner.config()));
  return `offbeat sft: trains on examples by cross-entropy, on this machine.

The examples are the solutions of the task's problems, or a file of prompts and answers or of conversations. The run is
like one of offbeat up: --run NAME --resume continues it, and offbeat up --from NAME starts reinforcement learning from
its weights. Without --epochs, --max-steps and --max-minutes it trains for one epoch.

How to run it:
${describeFlags(sftShape, upService, { isAll: false })}

What to train:
${describeFlags(choices, upService)}
`;
}

/** Trains on examples and returns the exit code, as `up` does. */
export function sft(argv: readonly string[], env: Environment): Promise<number> {
  return up(argv, env, sftCommand);
}
