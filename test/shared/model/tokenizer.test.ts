import assert from 'node:assert/strict';
import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { AutoTokenizer, env } from '@huggingface/transformers';
import { embeddedModelPath, readModelDirectory } from '../../../shared/model/model-directory.js';
import { loadTokenizer, type ChatMessage } from '../../../shared/model/tokenizer.js';
import { answerExample } from '../../../shared/tasks/examples/example.js';
import { promptTokens } from '../../../shared/tasks/prompt.js';
import { tinyModel } from '../../support/tiny-model.js';

const template =
  "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}" +
  '{% if add_generation_prompt %}[assistant]{% endif %}';
const chat: ChatMessage[] = [
  { role: 'system', content: '1' },
  { role: 'user', content: ' 2+3' },
];
const asText = '[system] 1\n[user]  2+3\n[assistant]';

describe('a plain tokenizer', () => {
  it('a plain tokenizer gives the tokens and texts of transformers', async () => {
    const directory = await readModelDirectory(embeddedModelPath);
    const plain = await loadTokenizer(directory);
    env.allowRemoteModels = false;
    const full = await AutoTokenizer.from_pretrained(directory.path, { local_files_only: true });
    const texts = ['', '3 7 21=84:', '(7-3)*21', ' 2+3  ', 'Größe\n<eos>1<pad>', '<unk>x'];
    for (const text of texts) {
      const tokens = full.encode(text, { add_special_tokens: false });
      assert.deepEqual([...plain.encode(text)], tokens, text);
    }
    const all = Array.from({ length: directory.config.vocabSize }, (_, id) => id);
    for (const tokens of [all, all.toReversed(), ...all.map((id) => [id, 5, id])]) {
      const text = full.decode(tokens, {
        skip_special_tokens: true,
        clean_up_tokenization_spaces: false,
      });
      assert.equal(plain.decode(tokens), text);
    }
    assert.equal(plain.unknownTokenId, full.unk_token_id);
    const bare = { ...directory, config: { ...directory.config, eosTokenIds: [] } };
    assert.deepEqual((await loadTokenizer(bare)).eosTokenIds, [full.eos_token_id]);
  });

  it('a tokenizer without its files is refused', async () => {
    await using model = await tinyModel();
    await rm(join(model.path, 'tokenizer.json'));
    await assert.rejects(loadTokenizer(model), { name: 'UserError', message: /tokenizer\.json/ });
  });
});

describe('a directory whose name no repository may have', () => {
  for (const name of [
    'Qwen--Qwen3-0.6B',
    'my model',
    'Qwen3-0.6B@main',
    '模型',
    'v1..2',
    'x.git',
  ]) {
    it(`a tokenizer with a chat template is read from a directory of the name ${name}`, async () => {
      await using model = await tinyModel();
      const path = join(model.path, name);
      const files = ['tokenizer.json', 'tokenizer_config.json'];
      for (const file of files) await cp(join(model.path, file), join(path, file));
      await writeFile(join(path, 'chat_template.jinja'), template);
      const tokenizer = await loadTokenizer({ ...model, path });
      assert.equal(tokenizer.chatText(chat), asText);
      assert.deepEqual(tokenizer.encode('3 7'), (await loadTokenizer(model)).encode('3 7'));
    });
  }
});

describe('a tokenizer whose token for unknown text is a special one', () => {
  const alter = async (path: string, change: (json: { model: object }) => object) => {
    const json = JSON.parse(await readFile(path, 'utf8')) as { model: object };
    await writeFile(path, JSON.stringify(change(json)));
  };

  it('it has a token for unknown text only if it gives it to such text', async () => {
    await using model = await tinyModel();
    const [end] = (await loadTokenizer(model)).eosTokenIds;
    await alter(join(model.path, 'tokenizer_config.json'), (json) => ({
      ...json,
      unk_token: '<eos>',
    }));
    assert.equal((await loadTokenizer(model)).unknownTokenId, undefined);
    await alter(join(model.path, 'tokenizer_config.json'), (json) => ({
      ...json,
      unk_token: '<pad>', // as SmolLM2's, which is not the token of the end
    }));
    assert.equal((await loadTokenizer(model)).unknownTokenId, undefined);
    await alter(join(model.path, 'tokenizer_config.json'), (json) => ({
      ...json,
      unk_token: '<eos>',
    }));
    await alter(join(model.path, 'tokenizer.json'), (json) => ({
      ...json,
      model: { ...json.model, unk_token: '<eos>' },
    }));
    assert.equal((await loadTokenizer(model)).unknownTokenId, end);
  });
});

describe('a tokenizer that begins a text with a special token', () => {
  const [bos, eos] = ['<pad>', '<eos>']; // any two special tokens, with the ids 0 and 1
  const special = (id: string) => ({ SpecialToken: { id, type_id: 0 } });
  const postProcessor = {
    type: 'TemplateProcessing',
    single: [special(bos), { Sequence: { id: 'A', type_id: 0 } }, special(eos)],
    pair: [],
    special_tokens: Object.fromEntries(
      [bos, eos].map((token, id) => [token, { id: token, ids: [id], tokens: [token] }]),
    ),
  };
  const alter = async (path: string, change: object) => {
    const json = JSON.parse(await readFile(path, 'utf8')) as object;
    await writeFile(path, JSON.stringify({ ...json, ...change }));
  };

  for (const [what, config] of [
    ['a plain tokenizer', {}],
    ['a tokenizer of transformers', { chat_template: template }],
  ] as const) {
    it(`the prompts of ${what} begin with it once, and chats and answers do not`, async () => {
      await using model = await tinyModel();
      const usual = await loadTokenizer(model);
      assert.deepEqual(usual.beginning, []);
      await alter(join(model.path, 'tokenizer.json'), { post_processor: postProcessor });
      await alter(join(model.path, 'tokenizer_config.json'), config);
      const tokenizer = await loadTokenizer(model);
      const plain = [...usual.encode('3 7')];

      assert.deepEqual(tokenizer.beginning, [0]);
      assert.deepEqual([...tokenizer.encode('3 7')], plain);
      assert.deepEqual([...promptTokens({ text: '3 7' }, tokenizer)], [0, ...plain]);
      assert.deepEqual([...promptTokens({ text: `${bos}3 7` }, tokenizer)], [0, ...plain]);
      const { tokens } = answerExample({ text: '3 7' }, '3', tokenizer, []);
      assert.deepEqual([...tokens], [0, ...plain, plain[0], 1]);
      const chatting = { ...tokenizer, chatText: () => '3 ' };
      assert.deepEqual([...promptTokens({ chat, opening: '7' }, chatting)], plain);
    });
  }
});

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

  it('a chat whose template names the current date has the same one on any day', async () => {
    await using model = await tinyModel();
    const dated =
      "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}" +
      "{{ date_string + ' = ' + strftime_now('%d %B %Y, %H:%M') + ' = ' + strftime_now('%Y-%m-%d 100%%') }}";
    await writeFile(join(model.path, 'chat_template.jinja'), dated);
    assert.equal(
      (await loadTokenizer(model)).chatText(chat),
      '26 Jul 2024 = 26 July 2024, 00:00 = 2024-07-26 100%',
    );
  });

  for (const tokenizerClass of ['PreTrainedTokenizerFast', 'GPT2Tokenizer']) {
    it(`a chat is refused by a model without a template (${tokenizerClass})`, async () => {
      await using model = await tinyModel();
      const path = join(model.path, 'tokenizer_config.json');
      const config = JSON.parse(await readFile(path, 'utf8')) as object;
      await writeFile(path, JSON.stringify({ ...config, tokenizer_class: tokenizerClass }));
      const tokenizer = await loadTokenizer(model);
      assert.throws(() => tokenizer.chatText(chat), {
        name: 'UserError',
        message: /has no chat template.*choose a plain prompt style/,
      });
    });
  }
});
