import { answersIn } from '../answer-place.js';
import { splitRows } from '../dataset.js';
import { fillTemplate, shownText } from '../prompt-template.js';
import { checkData, readData, sourceOf } from '../data/data.js';
import { defineTask, type Task } from '../task.js';
import { problemOfRow, type Problem } from './problem.js';
import { scoreAnswer } from './score.js';
import { integerAnswersSettings, integerAnswersSpec } from './settings.js';
import { IntegerAnswersSpec } from './spec.js';

/** Questions in words whose answers are integers, such as GSM8K's. */
export const integerAnswers = defineTask({
  name: 'integer-answers',
  settings: integerAnswersSettings,
  spec: IntegerAnswersSpec,
  check: (settings, complain) => {
    checkData('integer-answers', settings, complain);
  },
  configure: integerAnswersSpec,
  open: openIntegerAnswers,
});

function openIntegerAnswers(spec: IntegerAnswersSpec): Task<Problem> {
  const { name, dataset, prompt, reward } = spec;
  const { answer } = prompt;
  const form = { answer, examples: answersIn(answer, shownText(prompt)) };
  return {
    async load() {
      const rows = await readData(dataset, problemOfRow, {
        question: 'How much is …?',
        answer: 72,
      });
      return splitRows(name, rows, { ...dataset, source: sourceOf(dataset) });
    },
    prompt: ({ question }) => fillTemplate(prompt, { question }),
    stop: prompt.stop,
    score: (problem, completion) => scoreAnswer(form, problem, completion, reward),
    problemOf: problemOfRow,
  };
}
