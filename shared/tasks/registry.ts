import { z } from 'zod';
import { countdown } from './countdown/task.js';
import { integerAnswers } from './integer-answers/task.js';
import { CommonSettings, type Complain, type Task } from './task.js';
import { tableSpec } from './data/table.js';

/** Every task, the default first. Schemas, flags and dispatch follow from this list. */
export const tasks = [countdown, integerAnswers] as const;
type Tasks = typeof tasks;

/** The specification of a task in the run's configuration. */
export const TaskSpec = z.discriminatedUnion(
  'name',
  tasks.map(({ spec }) => spec) as unknown as SpecsOf<Tasks>,
);
type SpecsOf<List extends readonly { readonly spec: unknown }[]> = {
  readonly [I in keyof List]: List[I]['spec'];
};
export type TaskSpec = z.infer<typeof TaskSpec>;

/** Opens the task that a run trains on. Nothing is read before its `load`. */
export function openTask(spec: TaskSpec): Task {
  return definitionOf(spec.name).open(spec);
}

/**
 * The task with its data in a local file. The digest shows whether it is the same data.
 *
 * @param path that of the file; ignored if undefined or if the task generates its data.
 * @throws {UserError} if the file is of an unknown kind.
 */
export function withDataAt(spec: TaskSpec, path: string | undefined): TaskSpec {
  const { dataset } = spec;
  if (path === undefined || dataset.kind === 'generator') return spec;
  const { seed, testSize } = dataset;
  return { ...spec, dataset: tableSpec(path, { seed, testSize }, '--dataset-path') };
}

/** The learner's settings of the task. */
export const TaskSettings = z.object({
  task: z
    .enum(tasks.map(({ name }) => name))
    .default(tasks[0].name)
    .describe('task to learn.'),
  ...CommonSettings.shape,
  ...flagsOf(tasks),
});
export type TaskSettings = z.infer<typeof TaskSettings>;

/** Reports invalid combinations of valid task settings, under their keys. */
export function checkTask(settings: TaskSettings, complain: Complain): void {
  const given: Readonly<Record<string, unknown>> = settings;
  const own = definitionOf(settings.task);
  for (const { name, settings: flags } of tasks) {
    if (name === settings.task) continue;
    for (const key of Object.keys(flags).filter((key) => given[key] !== undefined)) {
      if (key in own.settings) continue;
      complain(key, `--task ${settings.task} does not use it, only --task ${name} does; remove it`);
    }
  }
  own.check?.(settings, complain);
}

/**
 * The task that the settings ask for.
 *
 * @throws {UserError} if they name something that does not exist.
 */
export function taskSpec(settings: TaskSettings): Promise<TaskSpec> {
  return definitionOf(settings.task).configure(settings);
}

/** A task without its own types; it is only used with settings and specifications of the same name. */
interface AnyTask {
  readonly settings: object;
  check?(settings: TaskSettings, complain: Complain): void;
  configure(settings: TaskSettings): Promise<TaskSpec>;
  open(spec: TaskSpec): Task;
}

function definitionOf(task: TaskSpec['name']): AnyTask {
  return tasks.find(({ name }) => name === task)!;
}

/**
 * The flags of all tasks together.
 *
 * @throws {Error} if a task uses a name that is already taken, because it would get the other flag's values.
 */
export function flagsOf<Definition extends { readonly name: string; readonly settings: object }>(
  definitions: readonly Definition[],
): Intersection<Definition['settings']> {
  const taken: Record<string, unknown> = { task: undefined, ...CommonSettings.shape };
  const flags: Record<string, unknown> = {};
  for (const { name, settings } of definitions) {
    for (const [key, flag] of Object.entries(settings)) {
      if (key in taken && taken[key] !== flag) {
        throw new Error(`the flag ${key} of the task ${name} is taken; give it another name`);
      }
      taken[key] = flags[key] = flag;
    }
  }
  return flags as Intersection<Definition['settings']>;
}

/** The intersection of all members of a union. */
type Intersection<Union> = (Union extends unknown ? (value: Union) => void : never) extends (
  value: infer All,
) => void
  ? All
  : never;
