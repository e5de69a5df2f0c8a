/** The part of a tokenizer that a prompt needs; `Tokenizer` of shared/model is one. */
export interface PromptTokenizer {
  /** The chat in the words of the model's template, up to where the assistant answers. */
  chatText(messages: readonly ChatMessage[]): string;
  encode(text: string): Int32Array;
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** What the policy is asked to continue. */
export type Prompt =
  | { readonly text: string } // as it is
  | {
      readonly chat: readonly ChatMessage[]; // in the words of the tokenizer's chat template
      readonly opening: string; // what the assistant has already said
    };

/** The prompt's text, as the model reads it. */
export function promptText(prompt: Prompt, tokenizer: Pick<PromptTokenizer, 'chatText'>): string {
  return 'text' in prompt ? prompt.text : tokenizer.chatText(prompt.chat) + prompt.opening;
}

/** [P] the prompt's tokens: actors and reward service must come to the same. */
export function promptTokens(prompt: Prompt, tokenizer: PromptTokenizer): Int32Array {
  return tokenizer.encode(promptText(prompt, tokenizer));
}
