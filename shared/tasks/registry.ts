import { z } from 'zod';
import { checkCountdown, countdownSettings, countdownSpec } from '../countdown/settings.js';
import { CountdownSpec } from '../countdown/spec.js';
import { countdown } from '../countdown/task.js';
import {
  checkIntegerAnswers,
  integerAnswersSettings,
  integerAnswersSpec,
} from '../integer-answers/settings.js';
import { IntegerAnswersSpec } from '../integer-answers/spec.js';
import { integerAnswers } from '../integer-answers/task.js';
import { CommonSettings } from './settings.js';
import { tableSpec } from './table.js';
import type { Task } from './task.js';

/** A task with all that it needs, as the run's configuration has it. */
export const TaskSpec = z.discriminatedUnion('name', [CountdownSpec, IntegerAnswersSpec]);
export type TaskSpec = z.infer<typeof TaskSpec>;

/** The task that a run trains on. Nothing is read before its `load`. */
export function openTask(spec: TaskSpec): Task {
  switch (spec.name) {
    case 'countdown':
      return countdown(spec);
    case 'integer-answers':
      return integerAnswers(spec);
  }
}

/**
 * The task with its data in a file of this machine. Whether it is the same data, its digest shows.
 *
 * @param path of the file; undefined, or of no use to a task that generates its data: all as it was.
 * @throws {UserError} if the file is of no known kind.
 */
export function withDataAt(spec: TaskSpec, path: string | undefined): TaskSpec {
  const { dataset } = spec;
  if (path === undefined || dataset.kind === 'generator') return spec;
  const { seed, testSize } = dataset;
  return { ...spec, dataset: tableSpec(path, { seed, testSize }) };
}

/** The settings that one task alone has. */
const ownSettings = {
  countdown: countdownSettings,
  'integer-answers': integerAnswersSettings,
};
type TaskName = keyof typeof ownSettings;

/** The learner's settings of the task. */
export const TaskSettings = z.object({
  task: z
    .enum(Object.keys(ownSettings) as [TaskName, ...TaskName[]])
    .default('countdown')
    .describe('what is learnt.'),
  ...CommonSettings.shape,
  ...countdownSettings,
  ...integerAnswersSettings,
});
export type TaskSettings = z.infer<typeof TaskSettings>;

/** Tells what is wrong with settings of the task that each are right, under their keys. */
export function checkTask(
  settings: TaskSettings,
  complain: (key: string, message: string) => void,
): void {
  const given: Readonly<Record<string, unknown>> = settings;
  for (const [task, shape] of Object.entries(ownSettings)) {
    if (task === settings.task) continue;
    for (const key of Object.keys(shape).filter((key) => given[key] !== undefined)) {
      complain(key, `--task ${settings.task} has no use for it, only ${task}; remove it`);
    }
  }
  if (settings.task === 'countdown') checkCountdown(settings, complain);
  else checkIntegerAnswers(settings, complain);
}

/**
 * The task that the settings ask for.
 *
 * @throws {UserError} if they name something that is not there.
 */
export function taskSpec(settings: TaskSettings): Promise<TaskSpec> {
  return settings.task === 'countdown' ? countdownSpec(settings) : integerAnswersSpec(settings);
}
