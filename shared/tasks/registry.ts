import { z } from 'zod';
import { countdownSettings, countdownSpec } from '../countdown/settings.js';
import { CountdownSpec } from '../countdown/spec.js';
import { countdown } from '../countdown/task.js';
import { promptLanguages } from './prompt-template.js';
import type { Task } from './task.js';

/** A task with all that it needs, as the run's configuration has it. A new task is added below, too. */
export const TaskSpec = z.discriminatedUnion('name', [CountdownSpec]);
export type TaskSpec = z.infer<typeof TaskSpec>;

/** The task that a run trains on. Nothing is read before its `load`. */
export function openTask(spec: TaskSpec): Task {
  return countdown(spec);
}

const whole = z.coerce.number().int();
const text = z.string().min(1);

/** The learner's settings of the task: those that all tasks have, and each one's own. */
export const TaskSettings = z.object({
  task: z.enum(['countdown']).default('countdown').describe('what is learnt.'),
  dataset: text
    .optional()
    .describe('generator, or the path of a JSONL file; countdown generates by default.'),
  testSize: whole
    .positive()
    .default(1_024)
    .describe('problems held out for evaluation: the first ones.'),
  datasetSeed: whole
    .min(0)
    .default(0)
    .describe('of the generator, or of the order in a file; --seed leaves the problems alone.'),
  promptStyle: text
    .optional()
    .describe(
      'how a problem is put to the model: compact (the default; the embedded model knows no other), ' +
        'fewshot, think, or a template file *.json.',
    ),
  promptLanguage: z
    .enum(promptLanguages)
    .default('en')
    .describe('of the prompt; compact has no words.'),
  ...countdownSettings,
});
export type TaskSettings = z.infer<typeof TaskSettings>;

/**
 * The task that the settings ask for.
 *
 * @throws {UserError} if they name something that is not there.
 */
export function taskSpec(settings: TaskSettings): Promise<TaskSpec> {
  return countdownSpec(settings);
}
