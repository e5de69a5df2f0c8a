import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  problemOfRow,
  IntegerAnswersPrompt,
  integerAnswers,
} from '../../../../shared/tasks/integer-answers/task.js';
import { styles } from '../../../../shared/tasks/integer-answers/prompts.js';
import type { PromptTemplate, Styles } from '../../../../shared/tasks/prompt-template.js';
import { promptText } from '../../../../shared/tasks/prompt.js';
import { chatml } from '../../../support/chatml.js';
import { integerAnswersSpec } from '../../../support/integer-answers-task.js';

const gsm8k = {
  question: 'Natalia sold clips to 48 friends in April, and half as many in May. How many in all?',
  answer: 'In May she sold 48/2 = <<48/2=24>>24.\nIn all 48+24 = <<48+24=72>>72.\n#### 72',
};

describe('a question with an integer answer', () => {
  it('a question is read in the form of GSM8K, or with a plain number', () => {
    assert.equal(problemOfRow(gsm8k).answer, 72n);
    assert.equal(problemOfRow({ question: 'q', answer: '#### 1,234' }).answer, 1_234n);
    assert.equal(problemOfRow({ question: 'q', answer: ' -5 ' }).answer, -5n);
    assert.equal(problemOfRow({ question: 'q', answer: 0 }).answer, 0n);
  });

  it('a question has an id made from its content, the same in every process', () => {
    assert.equal(problemOfRow({ question: 'q', answer: 72 }).id, 'f2014bf6cf2feb4482b1');
    assert.notEqual(
      problemOfRow({ question: 'q', answer: 7 }).id,
      problemOfRow({ question: 'q', answer: 72 }).id,
    );
  });

  it("a question's difficulty is its length in words", () => {
    assert.equal(problemOfRow({ question: 'How many?', answer: 1 }).difficulty, 'up to 10 words');
    assert.equal(problemOfRow(gsm8k).difficulty, 'up to 30 words');
    const long = { question: 'why '.repeat(61), answer: 1 };
    assert.equal(problemOfRow(long).difficulty, 'more than 60 words');
  });

  for (const answer of ['seven', '#### 7.5', '#### 3 or 4', '', 7.5, null]) {
    it(`a question is refused with the answer ${JSON.stringify(answer)}`, () => {
      assert.throws(() => problemOfRow({ question: 'q', answer }), { name: 'ZodError' });
    });
  }
});

describe('a file of questions', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-questions-'));
  });
  after(() => rm(folder, { recursive: true }));
  const load = async (...rows: object[]) => {
    const path = join(folder, 'questions.jsonl');
    await writeFile(path, rows.map((row) => JSON.stringify(row)).join('\n'));
    const dataset = { kind: 'jsonl', path, seed: 0, testSize: 1 } as const;
    return integerAnswers.open(integerAnswersSpec({ dataset })).load();
  };

  it('a file of questions is split like that of any task', async () => {
    const { test, train } = await load(gsm8k, { question: 'q', answer: 1 });
    assert.equal(test[0]!.question, gsm8k.question);
    assert.equal(train.length, 1);
  });

  it('a file of questions leaves a held-out question out of train, whatever its blanks and capitals', async () => {
    const again = { ...gsm8k, question: gsm8k.question.toUpperCase().replace(', ', ',\n') };
    const { train, leakedRows } = await load(gsm8k, again, { question: 'q', answer: 1 });
    assert.equal(leakedRows, 1);
    assert.deepEqual(
      train.map(({ question }) => question),
      ['q'],
    );
  });

  it('a file of questions is refused with the line that has no integer answer, and an example', async () => {
    await assert.rejects(load(gsm8k, { question: 'q', answer: 'many' }), {
      name: 'UserError',
      message:
        /like \{"question":"How much is …\?","answer":72\}:\n {2}- line 2: answer is "many": expected an integer, .*"many"/,
    });
    await assert.rejects(
      load({ question: 'q', answer: 3.5 }),
      /answer is 3\.5: expected an integer$/,
    );
  });
});

describe('the prompts for a question', () => {
  const { question } = gsm8k;
  const textIn = (style: keyof typeof styles) => {
    const task = integerAnswers.open(integerAnswersSpec({ prompt: styles[style].en }));
    return promptText(task.prompt(problemOfRow(gsm8k)), chatml);
  };

  it('the prompts show the question and where the answer belongs', () => {
    assert.equal(textIn('compact'), question);
    assert(textIn('fewshot').endsWith(`<answer>21</answer>\n\nQ: ${question}\nA:`));
    const think = textIn('think');
    assert(think.startsWith(`<|im_start|>user\n${question}\n\nReason step by step`));
    assert(think.endsWith('<|im_end|>\n<|im_start|>assistant\n<think>'));
  });

  it('the prompts are templates that the run configuration accepts unchanged', () => {
    for (const template of Object.values<Styles<PromptTemplate>[string]>(styles).flatMap(
      Object.values<PromptTemplate>,
    )) {
      assert.deepEqual(IntegerAnswersPrompt.parse(template), template);
    }
  });
});
