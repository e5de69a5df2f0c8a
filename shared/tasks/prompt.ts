/** The part of a tokenizer that a prompt needs; `Tokenizer` of shared/model is one. */
export interface PromptTokenizer {
  /** The chat formatted by the model's template, up to the start of the assistant's answer. */
  chatText(messages: readonly ChatMessage[]): string;
  readonly encode: (text: string) => Int32Array;
  readonly beginning: readonly number[]; // the tokens before a plain text
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
  if ('text' in prompt) return prompt.text;
  const { chat, opening } = prompt;
  return openedBy(tokenizer.chatText(chat), opening) + opening;
}

/**
 * A chat without the tag at its end with which the opening ends too: some templates, such as that of DeepSeek-R1, begin the
 * reasoning themselves, and the opening would begin it again.
 */
function openedBy(chat: string, opening: string): string {
  const tag = /<\w+>\s*$/.exec(opening)?.[0].trim();
  const text = chat.trimEnd();
  return tag !== undefined && text.endsWith(tag) ? text.slice(0, -tag.length) : chat;
}

/**
 * [P] the prompt's tokens: must be the same in actors and reward service. A plain text begins as in the model's
 * pre-training, unless it has that beginning already; a chat template has written its own.
 */
export function promptTokens(prompt: Prompt, tokenizer: PromptTokenizer): Int32Array {
  const tokens = tokenizer.encode(promptText(prompt, tokenizer));
  const { beginning } = tokenizer;
  const isBegun = 'chat' in prompt || beginning.every((token, i) => tokens[i] === token);
  return isBegun ? tokens : Int32Array.of(...beginning, ...tokens);
}
