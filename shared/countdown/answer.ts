import type { RewardSpec } from '../wire/run-config.js';
import type { Problem } from './problem.js';
import type { Style } from './prompts.js';

/** Only this much of a completion's end is read: an answer is what a completion comes to. */
export const maxReadChars = 1 << 16;

/** Where a style's answers stand, and what of its prompt looks like one. */
export type AnswerForm = Pick<Style, 'answer' | 'allowsTargetTail' | 'examples'>;

/**
 * The answer that a completion gives: under `whole` all of it, otherwise what stands in the last
 * complete `<answer>…</answer>` near its end, where the prompt's own examples do not count.
 *
 * @param completion the sampled text alone, without the prompt, but with its stop sequence.
 * @param targetTail whether the tail `= target` is taken off before the answer is judged.
 * @returns the expression's text; undefined if there is no answer.
 */
export function extractAnswer(
  { answer: place, allowsTargetTail, examples }: AnswerForm,
  problem: Pick<Problem, 'target'>,
  completion: string,
  targetTail: RewardSpec['targetTail'] = 'by_style',
): string | undefined {
  const text = completion.slice(-maxReadChars);
  const answer = place === 'whole' ? notBlank(text) : lastBlock(text, examples);
  const takesTail = targetTail === 'accept' || (targetTail === 'by_style' && allowsTargetTail);
  return takesTail && answer !== undefined ? withoutTargetTail(answer, problem.target) : answer;
}

const opening = '<answer>';
const closing = '</answer>';

/** Enough to tell the prompt's words from a policy's, and little enough for an echo of a part. */
const leadChars = 8;

/**
 * The answer blocks of a prompt, each with up to 8 characters in front of it: `xample: ` belongs to
 * the example, where the same block behind other words is an answer.
 *
 * @returns texts such as `xample: <answer>(1+2)/3</answer>`, each once.
 */
export function answerBlocks(prompt: string): string[] {
  const blocks = new Set<string>();
  for (let end = 0; ;) {
    const close = prompt.indexOf(closing, end);
    if (close === -1) return [...blocks];
    const open = prompt.lastIndexOf(opening, close);
    if (open >= end) {
      const lead = prompt.slice(Math.max(0, open - leadChars), open).trimStart();
      blocks.add(lead + prompt.slice(open, close + closing.length));
    }
    end = close + closing.length;
  }
}

const maxEchoes = 128; // blocks of the prompt that may stand behind an answer

/** Looks from the end, in time linear in the text: each step goes back over what it has read. */
function lastBlock(text: string, examples: readonly string[]): string | undefined {
  let end = text.length;
  for (let echoes = 0; echoes <= maxEchoes; echoes++) {
    const close = end < closing.length ? -1 : text.lastIndexOf(closing, end - closing.length);
    if (close < opening.length) return undefined;
    const open = text.lastIndexOf(opening, close - opening.length);
    if (open === -1) return undefined;
    if (!examples.some((example) => standsAt(text, example, open))) {
      return text.slice(open + opening.length, text.indexOf(closing, open));
    }
    end = open;
  }
  return undefined;
}

/** Whether the block that opens there is the example's, words in front included. */
function standsAt(text: string, example: string, open: number): boolean {
  const start = open - example.lastIndexOf(opening);
  return start >= 0 && text.startsWith(example, start);
}

function notBlank(text: string): string | undefined {
  return /\S/.test(text) ? text : undefined;
}

function withoutTargetTail(answer: string, target: number): string {
  const equals = answer.lastIndexOf('=');
  const hasTail = equals !== -1 && answer.slice(equals + 1).trim() === String(target);
  return hasTail ? answer.slice(0, equals) : answer;
}
