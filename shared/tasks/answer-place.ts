import { z } from 'zod';

/** Where the answer stands in a completion: all of it, or between two tags. */
export const AnswerPlace = z.union([
  z.literal('whole'),
  z.strictObject({
    open: z.string().min(1).max(64), // such as <answer>
    close: z.string().min(1).max(64),
  }),
]);
export type AnswerPlace = z.infer<typeof AnswerPlace>;
type Tags = Exclude<AnswerPlace, 'whole'>;

/** Only this much of a completion's end is read: an answer is what a completion comes to. */
export const maxReadChars = 1 << 16;

/**
 * The answer that a completion gives: all of it, or what stands in the last complete pair of tags near
 * its end, where the prompt's own examples do not count.
 *
 * @param examples of the prompt, as `answerBlocks` finds them.
 * @param completion the sampled text alone, without the prompt, but with its stop sequence.
 * @returns undefined if there is no answer.
 */
export function answerText(
  place: AnswerPlace,
  examples: readonly string[],
  completion: string,
): string | undefined {
  const text = completion.slice(-maxReadChars);
  if (place !== 'whole') return lastBlock(text, place, examples);
  return /\S/.test(text) ? text : undefined;
}

/** Enough to tell the prompt's words from a policy's, and little enough for an echo of a part. */
const leadChars = 8;

/**
 * The answers that a prompt shows, each with up to 8 characters in front of it: `xample: ` belongs to
 * the example, where the same block behind other words is an answer.
 *
 * @returns texts such as `xample: <answer>(1+2)/3</answer>`, each once.
 */
export function answerBlocks(place: AnswerPlace, prompt: string): string[] {
  if (place === 'whole') return [];
  const { open: opening, close: closing } = place;
  const blocks = new Set<string>();
  for (let end = 0; ;) {
    const close = prompt.indexOf(closing, end);
    if (close === -1) return [...blocks];
    const open = prompt.lastIndexOf(opening, close);
    if (open >= end) {
      blocks.add(leadTo(prompt, open) + prompt.slice(open, close + closing.length));
    }
    end = close + closing.length;
  }
}

/** The last words before a place; a Chinese character says as much as three Latin ones. */
function leadTo(prompt: string, place: number): string {
  let start = place;
  for (let chars = 0; start > 0; start--) {
    chars += prompt[start - 1]! >= '\u2e80' ? 3 : 1;
    if (chars > leadChars) break;
  }
  return prompt.slice(start, place).trimStart();
}

const maxEchoes = 128; // blocks of the prompt that may stand behind an answer

/** Looks from the end, in time linear in the text: each step goes back over what it has read. */
function lastBlock(
  text: string,
  { open: opening, close: closing }: Tags,
  examples: readonly string[],
): string | undefined {
  let end = text.length;
  for (let echoes = 0; echoes <= maxEchoes; echoes++) {
    const close = end < closing.length ? -1 : text.lastIndexOf(closing, end - closing.length);
    if (close < opening.length) return undefined;
    const open = text.lastIndexOf(opening, close - opening.length);
    if (open === -1) return undefined;
    // The words in front of the block are the example's, too.
    const isExample = examples.some((example) => {
      const start = open - example.lastIndexOf(opening);
      return start >= 0 && text.startsWith(example, start);
    });
    if (!isExample) return text.slice(open + opening.length, text.indexOf(closing, open));
    end = open;
  }
  return undefined;
}
