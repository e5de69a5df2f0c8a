import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { answerExample } from '../../../../shared/tasks/examples/example.js';
import { openExamples } from '../../../../shared/tasks/examples/training-examples.js';
import { problemOf } from '../../../../shared/tasks/countdown/problem.js';
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
        const { reward, reason } = task.score(problem, task.solution!(problem)!);
        assert.deepEqual([reward, reason], [1, 'correct'], task.solution!(problem));
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
    assert.equal(task.solution!(problemOf([1, 1], 9)), undefined);
    assert.equal(task.solution!(problemOf([1, 2, 3, 4, 5], 15)), undefined); // too many to search
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
    assert.deepEqual([examples.train.size, examples.heldOut.size], [dataset.train.length, 2]);
    const [first, last] = [dataset.train[1]!, dataset.test[1]!];
    for (const [found, problem] of [
      [examples.train.at(1), first],
      [examples.heldOut.at(1), last],
    ] as const) {
      const answer = task.solution!(problem)!;
      assert.deepEqual(
        found,
        answerExample(task.prompt(problem), answer, source.tokenizer, task.stop),
      );
    }
  });

  it('a solution that is longer than an answer may be, or than the model can read, is refused', async () => {
    await assert.rejects(open({ maxTokens: 8 }), /--max-tokens allows an answer of 8; raise it/);
    await assert.rejects(open({ maxPositions: 100 }), /the model can read 100/);
  });

  it('a problem without a solution is refused by its name', async () => {
    const { task, dataset } = await open();
    const unknown = { ...task, solution: () => undefined };
    const { id } = dataset.train[0]!;
    await assert.rejects(open({ task: unknown }), new RegExp(`no solution of ${id};`));
  });
});
