import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import {
  chooseTemplate,
  fillTemplate,
  PromptTemplate,
} from '../../../shared/tasks/prompt-template.js';
import { styles } from '../../../shared/tasks/countdown/prompts.js';
import { CountdownPrompt } from '../../../shared/tasks/countdown/spec.js';

describe('a prompt template', () => {
  const parts = { numbers: '3, 7', target: '10' };

  it('a prompt template inserts the parts of a problem by name, as plain text', () => {
    const prompt = fillTemplate({ text: '{{ numbers }}={{target}}, {target}', opening: '' }, parts);
    assert.deepEqual(prompt, { text: '3, 7=10, {target}' });
  });

  it('a prompt template inserts the parts into a chat and into the beginning of its answer', () => {
    const chat = [{ role: 'user' as const, content: 'Reach {{target}}.' }];
    assert.deepEqual(fillTemplate({ chat, opening: 'With {{numbers}}: ' }, parts), {
      chat: [{ role: 'user', content: 'Reach 10.' }],
      opening: 'With 3, 7: ',
    });
  });

  it('a prompt template inserts a part unchanged, even if it is a pattern', () => {
    const prompt = fillTemplate({ text: '{{a}}{{b}}', opening: '' }, { a: "$&$'{{b}}", b: '1' });
    assert.deepEqual(prompt, { text: "$&$'{{b}}1" });
  });

  const refused: [what: string, template: object, says: RegExp][] = [
    ['neither text nor chat', { answer: 'whole' }, /either text or chat/],
    ['both', { text: 'x', chat: [{ role: 'user', content: 'x' }], answer: 'whole' }, /either text/],
    ['a plain text with an opening', { text: 'x', opening: 'y', answer: 'whole' }, /only a chat/],
    ['nothing about the answer', { text: 'x' }, /answer/],
    ['too long a stop text', { text: 'x', answer: 'whole', stop: ['x'.repeat(129)] }, /stop/],
    ['a misspelt key', { text: 'x', answer: 'whole', stops: [] }, /stops/],
  ];
  for (const [what, template, says] of refused) {
    it(`a prompt template with ${what} is refused`, () => {
      const { error } = PromptTemplate.safeParse({ name: 'mine', ...template });
      assert.match(String(error?.message), says);
    });
  }
});

describe('the prompt style that a user chooses', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-template-'));
  });
  after(() => rm(folder, { recursive: true }));
  const choose = (choice: string, language: 'en' | 'zh' = 'en') =>
    chooseTemplate(CountdownPrompt, styles, choice, language);
  const chooseFile = async (text: string) => {
    const path = join(folder, 'mine.json');
    await writeFile(path, text);
    return choose(path);
  };

  it("the prompt style may be the name of one of the task's styles", async () => {
    assert.deepEqual(await choose('fewshot'), styles.fewshot.en);
  });

  it('the prompt style is the same in every language if it has no words', async () => {
    assert.deepEqual(await choose('compact', 'zh'), styles.compact.en);
    assert.deepEqual(await choose('think', 'zh'), styles.think.zh);
  });

  it('the prompt style may be a file of the same form, in which defaults may be left out', async () => {
    const { text, answer, stop } = styles.fewshot.en;
    const file = JSON.stringify({ name: 'mine', text, answer, stop });
    assert.deepEqual(await chooseFile(file), { ...styles.fewshot.en, name: 'mine' });
  });

  it('the prompt style may be a file that begins with a byte order mark', async () => {
    const file = JSON.stringify({ ...styles.fewshot.en, name: 'mine' });
    assert.equal((await chooseFile(`\ufeff${file}`)).name, 'mine');
  });

  it('the prompt style is refused if neither a style nor a file has its name', async () => {
    await assert.rejects(choose('terse'), {
      name: 'UserError',
      message: /--prompt-style terse is none of compact, fewshot, think, nor a file/,
    });
    await assert.rejects(choose('toString'), { name: 'UserError' });
    await assert.rejects(
      choose(join(folder, 'missing.json')),
      /cannot read .*missing\.json.*ENOENT/,
    );
  });

  it('the prompt style is refused if its file names a part that no problem has', async () => {
    await assert.rejects(chooseFile('{"name":"a","text":"{{number}}","answer":"whole"}'), {
      name: 'UserError',
      message:
        /mine\.json is no prompt template:\n {2}- text: no problem has \{\{number\}\}; there are \{\{numbers\}\}/,
    });
    await assert.rejects(chooseFile('{"name":"a","text":"?","answer":"whole"}'), /look the same/);
    await assert.rejects(chooseFile('not json'), /cannot read the prompt template/);
  });
});
