import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { styles } from '../../../shared/tasks/countdown/prompts.js';
import {
  answersIn,
  answerText,
  endsInOpenTag,
  maxReadChars,
  type AnswerForm,
  type AnswerPlace,
  type PromptAnswers,
} from '../../../shared/tasks/answer-place.js';
import { shownText } from '../../../shared/tasks/prompt-template.js';
import { charactersSearched } from '../../support/string-work.js';

const tags = { open: '<answer>', close: '</answer>' };
const none = new Map<string, Set<string>>();
const formOf = (answer: AnswerPlace, over: Partial<AnswerForm> = {}): AnswerForm => ({
  ...{ answer, examples: none, isBegun: false, stop: [] },
  ...over,
});
const answerIn = (answer: AnswerPlace, examples: PromptAnswers, completion: string) =>
  answerText(formOf(answer, { examples }), completion);
const shownIn = (place: AnswerPlace, prompt: string) =>
  [...answersIn(place, prompt)].map(([block, leads]) => [block, ...leads]);

describe('answers between other tags', () => {
  it('an answer between other tags is found', () => {
    const boxed = { open: '\\boxed{', close: '}' };
    assert.equal(answerIn(boxed, none, 'so 6*7 = \\boxed{42}.'), '42');
    assert.equal(answerIn(boxed, none, '{41} <answer>42</answer>'), undefined);
  });

  it('an answer between two equal tags is found, and an example between them is recognized', () => {
    const dollars = { open: '$', close: '$' };
    assert.equal(answerIn(dollars, none, 'so $6*7$ = $42$.'), '42');
    const examples = answersIn(dollars, 'such as $1+2$ or $3$');
    assert.equal(answerIn(dollars, examples, 'first $42$, such as $1+2$'), '42');
  });
});

describe('the answers in a prompt', () => {
  it('the answers in a prompt are found with the words before them, each once', () => {
    assert.deepEqual(shownIn(tags, shownText(styles.fewshot.en)), [
      ['<answer>...</answer>', 'inside '],
      ['<answer>(1+2)/3</answer>', 'xample: '],
      ['<answer>(2*3)+7</answer>', 'er>.\nA: '],
    ]);
    assert.deepEqual(shownIn(tags, shownText(styles.think.en)), [
      ['<answer> </answer>', 'swer in '],
      ['<answer> (1 + 2) / 3 </answer>', 'example '],
    ]);
    assert.deepEqual(shownIn('whole', shownText(styles.fewshot.en)), []);
  });

  it('the answers in a prompt are complete blocks, also at the very beginning', () => {
    assert.deepEqual(shownIn(tags, '<answer>1</answer></answer><answer>'), [
      ['<answer>1</answer>', ''],
    ]);
    assert.deepEqual(shownIn(tags, '</answer><answer><answer>2</answer>'), [
      ['<answer>2</answer>', '<answer>'],
    ]);
  });

  it('the answers in a prompt count under each of the words that they are shown with', () => {
    const examples = answersIn(tags, 'One: <answer>1</answer> Two: <answer>1</answer>');
    assert.deepEqual(
      [...examples.values()].map((leads) => [...leads]),
      [['One: ', 'r> Two: ']],
    );
    assert.equal(answerIn(tags, examples, 'Hm: <answer>1</answer>'), '1');
    assert.equal(answerIn(tags, examples, '<answer>9</answer> Two: <answer>1</answer>'), '9');
  });
});

describe('an answer before echoes of an example', () => {
  it('an answer is found however many echoes of an example follow it', () => {
    const examples = answersIn(tags, 'such as <answer>1</answer>');
    const echoes = 'such as <answer>1</answer> '.repeat(1_000);
    assert.equal(answerIn(tags, examples, `<answer>9</answer> ${echoes}`), '9');
    assert.equal(answerIn(tags, examples, echoes), undefined);
  });
});

describe('an answer that the prompt has begun', () => {
  const brackets = { open: '[', close: ']' };
  const begun = formOf(brackets, { isBegun: true });

  it('a completion after an opening tag begins with the answer', () => {
    assert.equal(answerText(begun, '(7-3)*21]'), '(7-3)*21');
    assert.equal(answerText(begun, ' 3+7'), undefined);
    assert.equal(answerText(formOf({ open: '$', close: '$' }, { isBegun: true }), '42$'), '42');
  });

  it('a completion after an opening tag may write the tag again, or give another answer', () => {
    assert.equal(answerText(begun, '[(7-3)*21]'), '(7-3)*21');
    assert.equal(answerText(begun, '3+7], no: [3*7]'), '3*7');
  });

  it('an answer that the prompt has begun is out of view if the completion is too long', () => {
    const longest = `${'1'.repeat(maxReadChars - 1)}]`;
    assert.equal(answerText(begun, longest)?.length, maxReadChars - 1);
    assert.equal(answerText(begun, `1${longest}`), undefined);
  });

  it('an example that the prompt shows is an answer where the prompt has begun it', () => {
    const examples = answersIn(brackets, 'such as [1+2]. Yours: [');
    assert.equal(answerText({ ...begun, examples }, '1+2]'), '1+2');
  });

  const prompts: [prompt: string, place: AnswerPlace, ends: boolean][] = [
    ['The answer is [', brackets, true],
    ['The answer is [ \n', brackets, true],
    ['such as [1+2]: [', brackets, true],
    ['The answer is', brackets, false],
    ['such as [1+2]', brackets, false],
    ['Write it after [ and be brief:', brackets, false],
    ['Answer: ', { open: 'Answer: ', close: '\n' }, true],
    ['Answer:\n', { open: 'Answer:', close: '\n' }, false],
    ['so $', { open: '$', close: '$' }, true],
    ['such as $1+2$', { open: '$', close: '$' }, false],
    ['The answer is [', 'whole', false],
  ];
  for (const [prompt, place, ends] of prompts) {
    const what = place === 'whole' ? place : `${place.open}…${place.close}`;
    it(`the prompt ${JSON.stringify(prompt)} ${ends ? 'begins' : 'does not begin'} the answer ${JSON.stringify(what)}`, () => {
      assert.equal(endsInOpenTag(place, prompt), ends);
    });
  }
});

describe('an answer that is the whole completion', () => {
  it('the stop sequence is not part of the answer, nor what its last token has after it', () => {
    const form = formOf('whole', { stop: ['.', '\n', '..'] });
    assert.equal(answerText(form, '(7-3)*21.'), '(7-3)*21');
    assert.equal(answerText(form, '(7-3)*21'), '(7-3)*21');
    assert.equal(answerText(form, '7..'), '7');
    assert.equal(answerText(form, '7.\n'), '7');
    assert.equal(answerText(formOf('whole', { stop: ['.'] }), '72.\n'), '72');
    assert.equal(answerText(form, '.'), undefined);
  });
});

describe('the cost of finding answers', () => {
  const { open, close } = tags;
  const distinct = (i: number) =>
    String.fromCharCode(0x21 + (i % 90), 0x21 + (Math.trunc(i / 90) % 90));
  const hostile: Readonly<Record<string, (i: number) => string>> = {
    'closing tags alone': () => close,
    'opening tags alone': () => open,
    'examples, each with other words': (i) => `${distinct(i)}${open}${close}`,
    'examples, each with another answer': (i) => `${open}${distinct(i)}${close}`,
    'two opening tags to a closing one': () => open + open + close,
    'two closing tags to an opening one': () => open + close + close,
    'the beginnings of tags': () => '<answe </answe ',
  };
  for (const [name, part] of Object.entries(hostile)) {
    it(`the cost of finding answers is linear in the text: ${name}`, () => {
      const prompt = Array.from({ length: 20_000 }, (_, i) => part(i)).join('');
      const shown = charactersSearched(() => answersIn(tags, prompt));
      assert(shown <= 4 * prompt.length, `${shown} characters for a prompt of ${prompt.length}`);

      const examples = answersIn(tags, prompt);
      const read = charactersSearched(() => answerIn(tags, examples, prompt));
      assert(read <= 4 * maxReadChars, `${read} characters for the last ${maxReadChars}`);
    });
  }
});
