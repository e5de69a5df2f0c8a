import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { styles as countdownStyles } from '../../../../shared/tasks/countdown/prompts.js';
import { problemKey, problemOf } from '../../../../shared/tasks/countdown/problem.js';
import { CountdownPrompt } from '../../../../shared/tasks/countdown/spec.js';
import { countdown } from '../../../../shared/tasks/countdown/task.js';
import { datasetOf } from '../../../../shared/tasks/dataset.js';
import {
  isExample,
  leftOutText,
  openExamples,
} from '../../../../shared/tasks/examples/training-examples.js';
import { styles as questionStyles } from '../../../../shared/tasks/integer-answers/prompts.js';
import { integerAnswers, problemOfRow } from '../../../../shared/tasks/integer-answers/task.js';
import type { Prompt } from '../../../../shared/tasks/prompt.js';
import type { Task } from '../../../../shared/tasks/task.js';
import { chatTokenizer } from '../../../support/chatml.js';
import { countdownSpec } from '../../../support/countdown-task.js';
import { integerAnswersSpec } from '../../../support/integer-answers-task.js';

let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'offbeat-held-out-'));
});
after(() => rm(folder, { recursive: true }));

/** A line of a file that asks by this prompt. */
function lineOf(prompt: Prompt): object {
  if ('text' in prompt) return { prompt: prompt.text, answer: 'x' };
  return { messages: [...prompt.chat, { role: 'assistant', content: `${prompt.opening}x` }] };
}

/** The examples of a file whose lines are all for training. */
async function open(task: Task, test: Parameters<typeof datasetOf>[1], lines: readonly object[]) {
  const path = join(folder, 'examples.jsonl');
  await writeFile(path, lines.map((line) => JSON.stringify(line)).join('\n'));
  return openExamples(path, {
    ...{ task, dataset: datasetOf('any', test, []), tokenizer: chatTokenizer, stop: [] },
    ...{ maxPositions: 5_000, maxTokens: 20, heldOut: 0, seed: 0 },
  });
}

const countdownPrompts = Object.values(countdownStyles).flatMap((languages) =>
  Object.entries(languages).map(
    ([language, template]) => [language, CountdownPrompt.parse(template)] as const,
  ),
);

describe('a file of examples that asks held-out questions', () => {
  for (const [language, prompt] of countdownPrompts) {
    const task = countdown.open(countdownSpec({ prompt }));

    it(`a line in the form of ${prompt.name} (${language}) is left out if it asks a held-out question, in any order of the numbers`, () =>
      fc.assert(
        fc.asyncProperty(
          fc.array(
            fc.record({
              nums: fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 2, maxLength: 4 }),
              target: fc.integer({ min: -1, max: 1 }),
            }),
            { minLength: 1, maxLength: 20 },
          ),
          async (rows) => {
            const problems = rows.map(({ nums, target }) => problemOf(nums, target));
            const test = problems
              .slice(0, 4)
              .map(({ numbers, target }) => problemOf(numbers.toReversed(), target));
            const lines = problems.map((problem) => lineOf(task.prompt(problem)));
            const asked = new Set(test.map(problemKey));
            const leaked = problems.filter((problem) => asked.has(problemKey(problem))).length;
            if (leaked === lines.length) {
              await assert.rejects(
                open(task, test, lines),
                /each of the \d+ examples .* give others/,
              );
              return;
            }
            const { train, leftOut, uncompared } = await open(task, test, lines);
            const made = Array.from({ length: train.size }, (_, i) => train.at(i));
            assert.equal(made.length, lines.length); // each keeps its place
            assert.equal(made.filter(isExample).length, lines.length - leaked);
            assert.deepEqual([leftOut.problems, leftOut.checked], [leaked, lines.length]);
            assert.equal(uncompared, 0);
          },
        ),
        { numRuns: 25 },
      ));
  }

  for (const [name, { en: prompt }] of Object.entries(questionStyles)) {
    const task = integerAnswers.open(integerAnswersSpec({ prompt })) as Task;

    it(`a line in the form of ${name} is left out if it asks a held-out question in words, whatever its blanks and capitals`, async () => {
      const heldOut = problemOfRow({ question: 'How much is 6 * 7?', answer: 42 });
      const asks = (question: string) => lineOf(task.prompt(problemOfRow({ question, answer: 1 })));
      const lines = [asks('how much  is\n6 * 7?'), asks('How much is 6 * 8?')];
      const { leftOut, uncompared } = await open(task, [heldOut], lines);
      assert.deepEqual([leftOut.problems, uncompared], [1, 0]);
    });
  }

  const heldOut = problemOf([3, 7, 21], 84);
  const compact = countdown.open(countdownSpec()) as Task;

  it('each message of the user is compared, and lines in other forms are counted', async () => {
    const talk = (...asks: string[]) => ({
      messages: asks.flatMap((content) => [
        { role: 'user', content },
        { role: 'assistant', content: 'x' },
      ]),
    });
    const lines = [talk('Hi', '21 7 3=84:', 'Bye'), talk('Make 84 of 3, 7 and 21.'), talk('Hi')];
    const { leftOut, uncompared } = await open(compact, [heldOut], lines);
    assert.equal(
      leftOutText(leftOut),
      'among the 3 examples: 1 with the question of a held-out problem',
    );
    assert.equal(uncompared, 2);
  });

  it('without a form that the task can read, only a prompt of the same words is left out', async () => {
    const task = { ...compact };
    delete task.questionIn;
    const lines = ['3 7 21=84: ', '21 7 3=84:', '1 2=3:'].map((prompt) => ({
      prompt,
      answer: 'x',
    }));
    const { leftOut, uncompared } = await open(task, [heldOut], lines);
    assert.deepEqual([leftOut.problems, uncompared], [1, 2]);
  });

  it('only the whole conversation is compared if several messages ask, or another than the user does', async () => {
    for (const chat of [
      [
        { role: 'user', content: 'With {{numbers}}' },
        { role: 'user', content: 'make {{target}}' },
      ],
      [
        { role: 'system', content: 'Make {{target}} of {{numbers}}.' },
        { role: 'user', content: 'Begin!' },
      ],
    ]) {
      const prompt = CountdownPrompt.parse({ name: 'own', answer: 'whole', chat });
      const task = countdown.open(countdownSpec({ prompt })) as Task;
      const lineFor = (nums: number[]) => lineOf(task.prompt(problemOf(nums, 84)));
      const test = [heldOut, problemOf([1, 2], 3)];
      const lines = [lineFor([3, 7, 21]), lineFor([4, 7, 12])];
      const { leftOut, uncompared } = await open(task, test, lines);
      assert.deepEqual([leftOut.problems, uncompared], [1, 1]);
    }
  });

  it('the question is found without the messages that all prompts share, also by a task that reads none', async () => {
    const chat = [
      { role: 'system', content: 'Calculate.' },
      { role: 'user', content: 'Make {{target}} of {{numbers}}.' },
    ];
    const prompt = CountdownPrompt.parse({ name: 'own', answer: 'whole', chat });
    const task = { ...(countdown.open(countdownSpec({ prompt })) as Task) };
    delete task.questionIn;
    const lines = ['Make 84 of 3, 7, 21.', 'Make 84 of 3, 7, 22.'].map((content) => ({
      messages: [
        { role: 'user', content },
        { role: 'assistant', content: 'x' },
      ],
    }));
    const { leftOut } = await open(task, [heldOut, problemOf([1, 2], 3)], lines);
    assert.equal(leftOut.problems, 1);
  });

  it('a form may show a part twice, which must then be the same', () => {
    const text = '{{target}} of {{numbers}}? ({{ target }}.)';
    const prompt = CountdownPrompt.parse({ name: 'own', answer: 'whole', text });
    const task = countdown.open(countdownSpec({ prompt }));
    assert.equal(task.questionIn!('84 of 21, 7, 3? (84.)'), '3,7,21=84');
    assert.equal(task.questionIn!('84 of 21, 7, 3? (85.)'), undefined);
    assert.equal(task.questionIn!('84 of 21, 7, 3? (84!)'), undefined);
  });
});
