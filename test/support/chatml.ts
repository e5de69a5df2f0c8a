import type { Tokenizer } from '../../shared/model/tokenizer.js';

/** A conversation in the form of the Qwen models, as their chat templates write it. */
export const chatml: Pick<Tokenizer, 'chatText'> = {
  chatText: (messages) =>
    messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join('') +
    '<|im_start|>assistant\n',
};
