import type { PromptTemplate } from './prompt-template.js';

/**
 * A completion that gives an answer in the form that a prompt asks for. If the prompt has begun to think, the thoughts
 * come first.
 *
 * @param thoughts lines that lead to the answer.
 */
export function placedAnswer(
  { text = '', opening, answer: place }: Pick<PromptTemplate, 'text' | 'opening' | 'answer'>,
  answer: string,
  thoughts: readonly string[],
): string {
  if (place === 'whole') return answer;
  const placed = `${place.open}${answer}${place.close}`;
  const prompt = `${text}${opening}`;
  const [, think] = /<(\w+)>\s*$/.exec(prompt) ?? [];
  if (think !== undefined) return ['', ...thoughts, `</${think}>`, placed].join('\n');
  // Words are separated by a blank, after `A:` but not after `答：`.
  return /[!-~]$/.test(prompt) ? ` ${placed}` : placed;
}
