import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  answerExample,
  chatExample,
  type Example,
  trainedTokens,
} from '../../../../shared/tasks/examples/example.js';
import type { ChatMessage } from '../../../../shared/tasks/prompt.js';
import { chatTokenizer, eos } from '../../../support/chatml.js';

/** The text of an example with its trained tokens in brackets; the end of the sequence is `$`. */
function shown({ tokens, isTrained }: Example): string {
  let text = '';
  tokens.forEach((token, i) => {
    const was = isTrained[i - 1] ?? 0;
    if (isTrained[i] !== was) text += was === 0 ? '[' : ']';
    text += token === eos ? '$' : String.fromCodePoint(token);
  });
  return text + (isTrained.at(-1) === 1 ? ']' : '');
}

const user = (content: string): ChatMessage => ({ role: 'user', content });
const assistant = (content: string): ChatMessage => ({ role: 'assistant', content });

describe('the example of an answer', () => {
  it('an answer is trained to its end, and its prompt is only read', () => {
    const example = answerExample({ text: '1 2=3:' }, '1+2', chatTokenizer, []);
    assert.equal(shown(example), '1 2=3:[1+2$]');
    assert.equal(trainedTokens(example), 4);
  });

  it('an answer that ends sampling by its text has no other end', () => {
    const prompt = { text: 'A:' };
    assert.equal(
      shown(answerExample(prompt, ' <a>1</a>', chatTokenizer, ['</a>'])),
      'A:[ <a>1</a>]',
    );
    assert.equal(shown(answerExample(prompt, ' <a>1', chatTokenizer, ['</a>'])), 'A:[ <a>1$]');
  });

  it('a chat prompt has the opening of the answer, which is only read', () => {
    const prompt = { chat: [user('Hi')], opening: '<think>' };
    assert.equal(
      shown(answerExample(prompt, 'so', chatTokenizer, [])),
      '<user>Hi$\n<assistant><think>[so$]',
    );
  });
});

describe('an answer of a model with several ends', () => {
  const other = 0x11_0001; // written §: the end of a question, and of the text
  const tokenizer = {
    ...chatTokenizer,
    eosTokenIds: [other, eos],
    encode: (text: string) =>
      chatTokenizer.encode(text).map((token) => (token === '§'.codePointAt(0) ? other : token)),
    chatText: (messages: readonly ChatMessage[], opensAnswer = true) =>
      `<user>Hi§${messages.length > 1 ? '<assistant>1$§' : ''}${opensAnswer ? '<assistant>' : ''}`,
  };

  it('an answer to a chat ends as the chat template ends it, and one to a text with the first end', () => {
    const last = ({ tokens }: Example) => tokens.at(-1);
    const chat = { chat: [user('Hi')], opening: '' };
    assert.equal(last(answerExample(chat, 'so', tokenizer, [])), eos);
    assert.equal(last(answerExample({ text: 'A:' }, 'so', tokenizer, [])), other);
  });
});

describe('the example of a conversation', () => {
  it('what the assistant says is trained up to the end of each answer, and nothing else', () => {
    const messages = [user('Hi'), assistant('Hello'), user('2+2?'), assistant('4')];
    assert.equal(
      shown(chatExample(messages, chatTokenizer)),
      '<user>Hi$\n<assistant>[Hello$]\n<user>2+2?$\n<assistant>[4$]',
    );
  });

  it('the system and the Chinese text of a conversation are read as the template writes them', () => {
    const messages: ChatMessage[] = [
      { role: 'system', content: '你是助手' },
      user('二加二？'),
      assistant('四'),
    ];
    assert.equal(
      shown(chatExample(messages, chatTokenizer)),
      '<system>你是助手$\n<user>二加二？$\n<assistant>[四$]',
    );
  });

  it('an answer gets an end where the template writes none', () => {
    const endless = {
      ...chatTokenizer,
      chatText: (messages: readonly ChatMessage[], opensAnswer = true) =>
        chatTokenizer.chatText(messages, opensAnswer).replaceAll('$', ''),
    };
    assert.equal(
      shown(chatExample([user('Hi'), assistant('Yo')], endless)),
      '<user>Hi\n<assistant>[Yo\n$]',
    );
  });

  const rewriting = (rewrite: (message: ChatMessage) => ChatMessage) => ({
    ...chatTokenizer,
    chatText: (messages: readonly ChatMessage[], opensAnswer = true) =>
      chatTokenizer.chatText(
        messages.map((message, i) => (i < messages.length - 1 ? rewrite(message) : message)),
        opensAnswer,
      ),
  });

  it('of a conversation whose template rewrites earlier answers only the last one is trained', () => {
    const tokenizer = rewriting((message) =>
      message.role === 'assistant' ? assistant('(short)') : message,
    );
    const messages = [user('Hi'), assistant('Hello'), user('2+2?'), assistant('4')];
    assert.equal(
      shown(chatExample(messages.slice(0, 2), tokenizer)),
      '<user>Hi$\n<assistant>[Hello$]',
    );
    assert.equal(
      shown(chatExample(messages, tokenizer)),
      '<user>Hi$\n<assistant>(short)$\n<user>2+2?$\n<assistant>[4$]',
    );
  });

  it('a template that opens an answer with words which a finished answer does not have is refused', () => {
    const opening = {
      ...chatTokenizer,
      chatText: (messages: readonly ChatMessage[], opensAnswer = true) =>
        chatTokenizer.chatText(messages, opensAnswer) + (opensAnswer ? '<think>' : ''),
    };
    assert.throws(
      () => chatExample([user('Hi'), assistant('Hello')], opening),
      /messages\.1: .* opens an answer .* give the line as prompt and answer/,
    );
  });
});
