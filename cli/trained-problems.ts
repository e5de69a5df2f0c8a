import { UserError } from '../shared/base/errors.js';
import type { RunConfig } from '../shared/run/run-config.js';
import type { TaskProblem } from '../shared/tasks/dataset.js';
import { openTask } from '../shared/tasks/registry.js';

/** What is known of problems that a run may have been trained on. */
interface Trained {
  readonly trained: number; // problems that it was trained on, as far as was compared
  readonly heldOut: number | undefined; // problems that it holds out itself; undefined if its data cannot be read here
  readonly notCompared: readonly string[]; // sentences about what else it has learned from
}

/**
 * Counts the problems that a run was trained on, by what they ask: a problem with its numbers in another order asks the same.
 *
 * @param run how the sentences name it.
 * @param problems of the run's task.
 */
export async function countTrained(
  run: string,
  { task: spec, supervised, from }: Pick<RunConfig, 'task' | 'supervised' | 'from'>,
  problems: readonly TaskProblem[],
): Promise<Trained> {
  const notCompared: string[] = [];
  const isOnFile = supervised !== undefined && supervised.data !== 'solver';
  if (isOnFile) {
    notCompared.push(
      `${run} was trained on ${supervised.data}; nothing compares it with the problems`,
    );
  }
  if (from !== undefined) {
    const start = from.run ?? from.path;
    notCompared.push(`${run} started from ${start}; what that was trained on is not compared`);
  }
  const task = openTask(spec);
  const questionOf = (problem: TaskProblem) => task.questionOf?.(problem) ?? problem.id;
  try {
    const { train, test } = await task.load();
    const asked = new Set(isOnFile ? [] : train.map(questionOf));
    const trained = problems.filter((problem) => asked.has(questionOf(problem))).length;
    return { trained, heldOut: test.length, notCompared };
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    notCompared.push(
      `cannot check whether ${run} was trained on the problems: its own cannot be read here (${error.message})`,
    );
    return { trained: 0, heldOut: undefined, notCompared };
  }
}
