import type { ChatMessage, Tokenizer } from '../../shared/model/tokenizer.js';

/** A conversation in the form of the Qwen models, as their chat templates write it. */
export const chatml: Pick<Tokenizer, 'chatText'> = {
  chatText: (messages) =>
    messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join('') +
    '<|im_start|>assistant\n',
};

/** The token for the end of a sequence, which no character has. */
export const eos = 0x11_0000;

/** A chat tokenizer with one token for each character, and one for the end of a message, which is written `$`. */
export const chatTokenizer = {
  eosTokenIds: [eos],
  unknownTokenId: undefined,
  beginning: [],
  encode: (text: string) =>
    Int32Array.from(text, (char) => (char === '$' ? eos : char.codePointAt(0)!)),
  chatText: (messages: readonly ChatMessage[], opensAnswer = true) =>
    messages.map(({ role, content }) => `<${role}>${content}$\n`).join('') +
    (opensAnswer ? '<assistant>' : ''),
};
