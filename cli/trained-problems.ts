import type { RunConfig } from '../shared/run/run-config.js';
import type { TaskProblem } from '../shared/tasks/dataset.js';
import { openTask } from '../shared/tasks/registry.js';

/**
 * Counts the problems that a run was trained on, by what they ask: a problem with its numbers in another order asks the same.
 * Examples of a file and the weights that the run began from are not looked at.
 *
 * @param problems of the run's task.
 * @returns the number of them, and how many problems the run holds out.
 * @throws {UserError} if the problems of the run cannot be read here.
 */
export async function countTrained(
  { task: spec, supervised }: Pick<RunConfig, 'task' | 'supervised'>,
  problems: readonly TaskProblem[],
): Promise<{ readonly trained: number; readonly heldOut: number }> {
  const task = openTask(spec);
  const questionOf = (problem: TaskProblem) => task.questionOf?.(problem) ?? problem.id;
  const { train, test } = await task.load();
  const asked = new Set(isOnFile({ supervised }) ? [] : train.map(questionOf));
  const trained = problems.filter((problem) => asked.has(questionOf(problem))).length;
  return { trained, heldOut: test.length };
}

/** Whether a run was trained on examples of a file, and on none of its task's problems. */
export function isOnFile({ supervised }: Pick<RunConfig, 'supervised'>): boolean {
  return supervised !== undefined && supervised.data !== 'solver';
}
