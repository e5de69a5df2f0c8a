import { z } from 'zod';
import { plainWords } from '../../../shared/base/plain-words.js';
import {
  checkData,
  dataOf,
  DataSpec,
  readData,
  sourceOf,
} from '../../../shared/tasks/data/data.js';
import { splitRows, type TaskProblem } from '../../../shared/tasks/dataset.js';
import {
  chooseTemplate,
  fillTemplate,
  namesOnly,
  PromptTemplate,
} from '../../../shared/tasks/prompt-template.js';
import { defineTask, type Task } from '../../../shared/tasks/task.js';
import type { Score } from '../../../shared/wire/scored-group.js';

/** Some numbers, of which the largest is to be found. */
interface Problem extends TaskProblem {
  readonly numbers: readonly number[];
}

const Prompt = PromptTemplate.check(namesOnly(['numbers']));

/** In characters that the embedded model reads. */
const styles = {
  compact: { en: { name: 'compact', text: '{{numbers}}:', answer: 'whole' } },
} as const;

/** Which of these numbers is the largest? */
export const largest = defineTask({
  name: 'largest',
  settings: {}, // flags that only this task has, such as `margin: whole.optional().describe('…')`
  spec: z.strictObject({ name: z.literal('largest'), dataset: DataSpec, prompt: Prompt }),

  check(settings, complain) {
    checkData('largest', settings, complain);
  },

  async configure(settings) {
    const { promptStyle, promptLanguage } = settings;
    return {
      name: 'largest',
      dataset: await dataOf(settings),
      prompt: await chooseTemplate(Prompt, styles, promptStyle, promptLanguage),
    };
  },

  open({ name, dataset, prompt }): Task<Problem> {
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
  },
});

/** 1 for the largest number alone, else 0. It never throws, whatever the policy writes. */
function score({ numbers }: Problem, completion: string): Score {
  const [, digits] = /^\s*(\d{1,9})\s*$/.exec(completion.slice(0, 1_000)) ?? [];
  const hasFormat = digits !== undefined;
  const isCorrect = hasFormat && Number(digits) === Math.max(...numbers);
  const reward = isCorrect ? 1 : 0;
  return {
    reward,
    exactReward: String(reward), // two of these decide whether a group has variance
    hasFormat,
    isValid: hasFormat,
    isCorrect,
    reason: isCorrect ? 'correct' : hasFormat ? 'wrong_value' : 'no_answer',
    ...(hasFormat && { value: digits }),
  };
}

const Row = z.object({ numbers: z.array(z.int().nonnegative()).min(2).max(6) });

/** The same row has the same id everywhere, and no other row has it. */
function problemOf(row: unknown): Problem {
  const { numbers } = Row.parse(row, { error: plainWords });
  return { id: numbers.join(','), difficulty: `${numbers.length} numbers`, numbers };
}
