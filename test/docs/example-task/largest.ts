import { z } from 'zod';
import { integersIn } from '../../../shared/integer-answers/integers.js';
import { DataSpec, readData, sourceOf } from '../../../shared/tasks/data.js';
import { splitRows } from '../../../shared/tasks/dataset.js';
import type { TaskProblem } from '../../../shared/tasks/problem.js';
import { fillTemplate, namesOnly, PromptTemplate } from '../../../shared/tasks/prompt-template.js';
import type { Task } from '../../../shared/tasks/task.js';
import type { Score } from '../../../shared/wire/scored-group.js';

/** Some numbers, of which the largest is to be found. */
export interface Problem extends TaskProblem {
  readonly numbers: readonly number[];
}

/** The task as a run's configuration has it: all that decides what a problem, a prompt, a score is. */
export const LargestSpec = z.strictObject({
  name: z.literal('largest'),
  dataset: DataSpec,
  prompt: PromptTemplate.check(namesOnly(['numbers'])),
});
export type LargestSpec = z.infer<typeof LargestSpec>;

/** In characters that the embedded model reads. */
export const compact = { name: 'compact', text: '{{numbers}}:', answer: 'whole' };

/** Which of these numbers is the largest? */
export function largest({ name, dataset, prompt }: LargestSpec): Task<Problem> {
  return {
    async load() {
      const rows = await readData(dataset, problemOf, { numbers: [3, 17, 8] });
      return splitRows(name, rows, { ...dataset, source: sourceOf(dataset) });
    },
    prompt: ({ numbers }) => fillTemplate(prompt, { numbers: numbers.join(' ') }),
    stop: prompt.stop,
    score,
    problemOf,
  };
}

/** 1 for the largest number alone, else 0. It never throws, whatever the policy writes. */
export function score({ numbers }: Problem, completion: string): Score {
  const [given, ...others] = integersIn(completion.slice(0, 1_000));
  const hasFormat = given !== undefined && others.length === 0;
  const isCorrect = hasFormat && given.value === BigInt(Math.max(...numbers));
  const reward = isCorrect ? 1 : 0;
  return {
    reward,
    exactReward: String(reward), // two of these decide whether a group has variance
    hasFormat,
    isValid: hasFormat,
    isCorrect,
    reason: isCorrect ? 'correct' : hasFormat ? 'wrong_value' : 'no_answer',
    ...(hasFormat && { value: String(given.value) }),
  };
}

const Row = z.object({ numbers: z.array(z.int().nonnegative()).min(2).max(6) });

/** The same row has the same id everywhere, and no other row has it. */
function problemOf(row: unknown): Problem {
  const { numbers } = Row.parse(row);
  return { id: numbers.join(','), difficulty: `${numbers.length} numbers`, numbers };
}
