import { z } from 'zod';
import { plainWords } from '../../base/plain-words.js';
import { datasetOf, splitRows, type Dataset } from '../dataset.js';
import { readData, sourceOf } from '../data/data.js';
import { defineTask, type Task } from '../task.js';
import { answerForm } from './answer.js';
import { generateProblems } from './generator.js';
import { problemOf, type Problem } from './problem.js';
import { renderPrompt } from './prompts.js';
import { scoreAnswer } from './score.js';
import { checkCountdown, countdownSettings, countdownSpec } from './settings.js';
import { CountdownSpec } from './spec.js';

/** Countdown: reach a target from some numbers, each used once. */
export const countdown = defineTask({
  name: 'countdown',
  settings: countdownSettings,
  spec: CountdownSpec,
  check: checkCountdown,
  configure: countdownSpec,
  open: openCountdown,
});

function openCountdown({ dataset, prompt, reward }: CountdownSpec): Task<Problem> {
  const form = answerForm(prompt);
  return {
    load: () => loadDataset(dataset),
    prompt: (problem) => renderPrompt(prompt, problem),
    stop: prompt.stop,
    score: (problem, completion) => scoreAnswer(form, problem, completion, reward),
    problemOf: problemOfRow,
  };
}

/**
 * The first `testSize` problems are held out. The rows of a file are shuffled behind that cut;
 * generated problems come in random order already.
 */
async function loadDataset(spec: CountdownSpec['dataset']): Promise<Dataset<Problem>> {
  if (spec.kind === 'generator') {
    const problems = generateProblems(spec).map(({ problem }) => problem);
    const { testSize } = spec;
    return datasetOf('countdown', problems.slice(0, testSize), problems.slice(testSize));
  }
  const rows = await readData(spec, problemOfRow, exampleRow);
  return splitRows('countdown', rows, { ...spec, source: sourceOf(spec) });
}

/** A good row of a data file. */
export const exampleRow = { nums: [3, 7, 21], target: 84 };

/** One row of a file; other keys beside these are left unread. */
const Row = z.object({
  nums: z.array(z.int().min(0).max(999_999_999)).min(2).max(16),
  target: z.int().min(-999_999_999).max(999_999_999),
});

/** The problem that a row of a data file states. */
export function problemOfRow(row: unknown): Problem {
  const { nums, target } = Row.parse(row, { error: plainWords });
  return problemOf(nums, target);
}
