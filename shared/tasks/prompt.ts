/** The part of a tokenizer that a prompt needs; `Tokenizer` of shared/model is one. */
export interface PromptTokenizer {
  /** The chat formatted by the model's template, up to the start of the assistant's answer. */
  chatText(messages: readonly ChatMessage[]): string;
  encode(text: string): Int32Array;
}

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant';
  readonly content: string;
}

/** A prompt that the policy continues. */
export type Prompt =
  | { readonly text: string } // plain text
  | {
      readonly chat: readonly ChatMessage[]; // formatted by the tokenizer's chat template
      readonly opening: string; // the beginning of the assistant's answer
    };

/** The prompt's text, as the model reads it. */
export function promptText(prompt: Prompt, tokenizer: Pick<PromptTokenizer, 'chatText'>): string {
  return 'text' in prompt ? prompt.text : tokenizer.chatText(prompt.chat) + prompt.opening;
}

/** [P] the prompt's tokens: must be the same in actors and reward service. */
export function promptTokens(prompt: Prompt, tokenizer: PromptTokenizer): Int32Array {
  return tokenizer.encode(promptText(prompt, tokenizer));
}
