import type { Problem } from './problem.js';
import { styles, type PromptStyle } from './prompts.js';

/**
 * The answer that a completion gives: under `compact` all of it, otherwise what stands in the last
 * complete `<answer>…</answer>`, where the prompt's own examples do not count.
 *
 * @param completion the sampled text alone, without the prompt.
 * @returns the expression's text without the tail `= target` where the style allows it; undefined if
 *   there is no answer.
 */
export function extractAnswer(
  style: PromptStyle,
  problem: Problem,
  completion: string,
): string | undefined {
  const { answer: place, allowsTargetTail, examples } = styles[style];
  if (place === 'whole') return completion.trim() === '' ? undefined : completion;
  const answer = lastBlock(completion, examples);
  return allowsTargetTail && answer !== undefined
    ? withoutTargetTail(answer, problem.target)
    : answer;
}

const opening = '<answer>';
const closing = '</answer>';
const maxExamples = 16; // that a completion may repeat behind its answer before we stop looking

/** Looks from the end, in time linear in the text: each step goes back over what it has read. */
function lastBlock(text: string, examples: readonly string[]): string | undefined {
  let end = text.length;
  for (let skipped = 0; skipped < maxExamples; skipped++) {
    const lastClose = text.lastIndexOf(closing, end - closing.length);
    if (lastClose < opening.length || end < closing.length) return undefined;
    const open = text.lastIndexOf(opening, lastClose - opening.length);
    if (open === -1) return undefined;
    const isExample = examples.some((example) => {
      const start = open - example.indexOf(opening);
      return start >= 0 && text.startsWith(example, start);
    });
    if (!isExample) {
      return text.slice(open + opening.length, text.indexOf(closing, open + opening.length));
    }
    end = open;
  }
  return undefined;
}

function withoutTargetTail(answer: string, target: number): string {
  const equals = answer.lastIndexOf('=');
  const hasTail = equals !== -1 && answer.slice(equals + 1).trim() === String(target);
  return hasTail ? answer.slice(0, equals) : answer;
}
