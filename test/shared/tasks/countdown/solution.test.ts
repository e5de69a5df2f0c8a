import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answerExample } from '../../../../shared/tasks/examples/example.js';
import {
  isExample,
  leftOutText,
  openExamples,
} from '../../../../shared/tasks/examples/training-examples.js';
import { UserError } from '../../../../shared/base/errors.js';
import { datasetOf } from '../../../../shared/tasks/dataset.js';
import { problemOf, type Problem } from '../../../../shared/tasks/countdown/problem.js';
import { calculation } from '../../../../shared/tasks/countdown/solution.js';
import { styles } from '../../../../shared/tasks/countdown/prompts.js';
import { countdown } from '../../../../shared/tasks/countdown/task.js';
import { CountdownPrompt } from '../../../../shared/tasks/countdown/spec.js';
import { chatTokenizer } from '../../../support/chatml.js';
import { countdownSpec } from '../../../support/countdown-task.js';

const prompts = Object.values(styles).flatMap((languages) =>
  Object.entries(languages).map(
    ([language, style]) => [language, CountdownPrompt.parse(style)] as const,
  ),
);

describe('the solutions of Countdown', () => {
  for (const [language, prompt] of prompts) {
    it(`a solution earns the reward 1 after a prompt of style ${prompt.name} in ${language}`, async () => {
      const task = countdown.open({ ...countdownSpec(), prompt });
      const { train } = await task.load();
      for (const problem of train.slice(0, 40)) {
        const solution = task.solution!(problem) as string;
        const { reward, reason } = task.score(problem, solution);
        assert.deepEqual([reward, reason], [1, 'correct'], solution);
      }
    });
  }

  const problem = { ...problemOf([3, 7, 21], 84), solution: '21*(7-3)' };
  const solutionIn = (prompt: unknown) =>
    countdown.open({ ...countdownSpec(), prompt: CountdownPrompt.parse(prompt) }).solution!(
      problem,
    );

  it('a solution begins where the prompt ends, in each style and language', () => {
    assert.equal(solutionIn(styles.compact.en), '21*(7-3)');
    assert.equal(solutionIn(styles.fewshot.en), ' <answer>21*(7-3)</answer>');
    assert.equal(solutionIn(styles.fewshot.zh), '<answer>21*(7-3)</answer>');
    const thought = '\n7-3=4\n21*4=84\n</think>\n<answer>21*(7-3)</answer>';
    assert.equal(solutionIn(styles.think.en), thought);
    assert.equal(solutionIn(styles.think.zh), thought);
    const own = {
      name: 'own',
      text: '{{numbers}} {{target}}\n',
      answer: { open: '[', close: ']' },
    };
    assert.equal(solutionIn(own), '[21*(7-3)]');
  });

  it('a solution does not repeat the opening tag that the prompt ends in', () => {
    const tags = { open: '<answer>', close: '</answer>' };
    const text = '{{numbers}}={{target}}: <answer>';
    assert.equal(solutionIn({ name: 'own', text, answer: tags }), '21*(7-3)</answer>');
  });

  it('a calculation shows every step, with negative numbers and fractions in parentheses', () => {
    assert.deepEqual(calculation('8/(3-8/3)'), ['8/3=8/3', '3-(8/3)=1/3', '8/(1/3)=24']);
    assert.deepEqual(calculation('(3-7)*-2'), ['3-7=-4', '(-4)*(-2)=8']);
    assert.deepEqual(calculation('7'), []);
  });

  it('the solver finds the solution of a problem that comes without one', () => {
    const task = countdown.open(countdownSpec());
    const unsolved = problemOf([3, 3, 8, 8], 24);
    assert.equal(task.solution!(unsolved), '8/(3-8/3)');
  });

  it('a problem that has no solution is distinguished from one with too many numbers to search for it', () => {
    const task = countdown.open(countdownSpec());
    assert.deepEqual(task.solution!(problemOf([1, 1], 9)), { reason: 'without a solution' });
    assert.deepEqual(task.solution!(problemOf([1, 2, 3, 4, 5], 15)), {
      reason: 'with too many numbers to search (more than 4)',
    });
    const made = { ...problemOf([1, 2, 3, 4, 5], 15), solution: '1+2+3+4+5' };
    assert.equal(task.solution!(made), '1+2+3+4+5');
  });
});

describe('the examples of the solver', () => {
  const open = async (more: object = {}) => {
    const task = countdown.open({
      ...countdownSpec(),
      prompt: CountdownPrompt.parse(styles.fewshot.en),
    });
    const dataset = await task.load();
    const source = {
      ...{ task, dataset, tokenizer: chatTokenizer, stop: task.stop, maxPositions: 2_000 },
      ...{ maxTokens: 60, heldOut: undefined, seed: 0 },
      ...more,
    };
    return { task, dataset, source, examples: await openExamples('solver', source) };
  };

  it('the examples are the training problems with their solutions, and held-out ones', async () => {
    const { task, dataset, source, examples } = await open({ heldOut: 2 });
    assert.deepEqual([examples.train.size, examples.heldOut.length], [dataset.train.length, 2]);
    const [first, last] = [dataset.train[1]!, dataset.test[1]!];
    for (const [found, problem] of [
      [examples.train.at(1), first],
      [examples.heldOut[1], last],
    ] as const) {
      const answer = task.solution!(problem) as string;
      assert.deepEqual(
        found,
        answerExample(task.prompt(problem), answer, source.tokenizer, task.stop),
      );
    }
    assert.equal(leftOutText(examples.leftOut), undefined);
  });

  const solvable = problemOf([3, 7, 21], 84);
  const unsolvable = problemOf([3, 7, 21], 64);
  const many = problemOf([1, 2, 3, 4, 5], 15);
  const datasetWith = (train: Problem[], test: Problem[] = []) => ({
    dataset: datasetOf('countdown', test, train),
  });

  it('problems without a solution that fits are left out and counted by the reason, and the others keep their places', async () => {
    const long = problemOf([13, 57, 86, 92], 248);
    const train = [unsolvable, solvable, many, long, unsolvable];
    const { examples } = await open({ ...datasetWith(train, train), maxTokens: 26 });
    const kinds = train.map((_, i) => isExample(examples.train.at(i)));
    assert.deepEqual(kinds, [false, true, false, false, false]);
    assert.deepEqual([examples.train.size, examples.heldOut.length], [5, 1]);
    assert.equal(
      leftOutText(examples.leftOut),
      'among the first 5 problems: 2 without a solution; ' +
        '1 with too many numbers to search (more than 4); ' +
        '1 whose solution is longer than --max-tokens 26',
    );
  });

  it('only the first problems are checked beforehand, and the others when they are asked for', async () => {
    const train = Array.from({ length: 1_500 }, (_, i) => (i === 1_400 ? unsolvable : solvable));
    const { examples } = await open(datasetWith(train));
    assert.deepEqual([examples.leftOut.checked, examples.leftOut.problems], [1_024, 0]);
    assert.deepEqual(examples.train.at(1_400), { reason: 'without a solution' });
  });

  const refused: [what: string, more: object, says: RegExp][] = [
    [
      'without a solution',
      datasetWith([unsolvable]),
      /first 1 problems: 1 without a solution; use/,
    ],
    [
      'with too many numbers',
      datasetWith([many, many]),
      /2 with too many numbers to search \(more than 4\);/,
    ],
    ['with long solutions', { maxTokens: 8 }, /10 whose solution is longer than --max-tokens 8/],
    [
      'with long prompts',
      { maxPositions: 100 },
      /10 too long for the 100 tokens that the model reads;/,
    ],
  ];
  for (const [what, more, says] of refused) {
    it(`only problems ${what} are refused`, async () => {
      await assert.rejects(open(more), (error) => {
        return error instanceof UserError && says.test(error.message);
      });
    });
  }

  it('a task that knows no solutions is refused', async () => {
    const { task } = await open();
    const unknown = { ...task, solution: undefined };
    await assert.rejects(open({ task: unknown }), /of a task that knows no solutions/);
  });
});
