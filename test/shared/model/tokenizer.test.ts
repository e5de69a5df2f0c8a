import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { loadTokenizer, type ChatMessage } from '../../../shared/model/tokenizer.js';
import { tinyModel } from '../../support/tiny-model.js';

const template =
  "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}" +
  '{% if add_generation_prompt %}[assistant]{% endif %}';
const chat: ChatMessage[] = [
  { role: 'system', content: '1' },
  { role: 'user', content: ' 2+3' },
];
const asText = '[system] 1\n[user]  2+3\n[assistant]';

describe('a chat', () => {
  it('a chat is formatted by the template in tokenizer_config.json', async () => {
    await using model = await tinyModel();
    const path = join(model.path, 'tokenizer_config.json');
    const config = JSON.parse(await readFile(path, 'utf8')) as object;
    await writeFile(path, JSON.stringify({ ...config, chat_template: template }));
    assert.equal((await loadTokenizer(model)).chatText(chat), asText);
  });

  it('a chat is formatted by chat_template.jinja, even if tokenizer_config.json has another template', async () => {
    await using model = await tinyModel();
    const path = join(model.path, 'tokenizer_config.json');
    const config = JSON.parse(await readFile(path, 'utf8')) as object;
    await writeFile(path, JSON.stringify({ ...config, chat_template: 'an older one' }));
    await writeFile(join(model.path, 'chat_template.jinja'), template);
    assert.equal((await loadTokenizer(model)).chatText(chat), asText);
  });

  it('a chat is refused by a model without a template', async () => {
    await using model = await tinyModel();
    const tokenizer = await loadTokenizer(model);
    assert.throws(() => tokenizer.chatText(chat), {
      name: 'UserError',
      message: /has no chat template.*choose a plain prompt style/,
    });
  });
});
