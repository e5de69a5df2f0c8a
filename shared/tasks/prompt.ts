import type { ChatMessage, Tokenizer } from '../model/tokenizer.js';

/** What the policy is asked to continue. */
export type Prompt =
  | { readonly text: string } // as it is
  | {
      readonly chat: readonly ChatMessage[]; // in the words of the tokenizer's chat template
      readonly opening: string; // what the assistant has already said
    };

/** The prompt's text, as the model reads it. */
export function promptText(prompt: Prompt, tokenizer: Pick<Tokenizer, 'chatText'>): string {
  return 'text' in prompt ? prompt.text : tokenizer.chatText(prompt.chat) + prompt.opening;
}

/** [P] the prompt's tokens: actors and reward service must come to the same. */
export function promptTokens(
  prompt: Prompt,
  tokenizer: Pick<Tokenizer, 'chatText' | 'encode'>,
): Int32Array {
  return tokenizer.encode(promptText(prompt, tokenizer));
}
