import { z } from 'zod';

/** The place of the answer in a completion: the whole completion, or between two tags. */
export const AnswerPlace = z.union([
  z.literal('whole'),
  z.strictObject({
    open: z.string().min(1).max(64), // such as <answer>
    close: z.string().min(1).max(64),
  }),
]);
export type AnswerPlace = z.infer<typeof AnswerPlace>;
type Tags = Exclude<AnswerPlace, 'whole'>;

/** Characters read at the end of a completion, where the answer is. */
export const maxReadChars = 1 << 16;

/** The only white space allowed in an answer; lookalikes such as a no-break space are not. */
export function isBlank(char: string): boolean {
  return char === ' ' || char === '\t' || char === '\r' || char === '\n';
}

/** The text without leading and trailing blanks. */
export function trimBlanks(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && isBlank(text[start]!)) start++;
  while (end > start && isBlank(text[end - 1]!)) end--;
  return text.slice(start, end);
}

/** The answers that a prompt shows: each block, including tags, with the text before it. */
export type PromptAnswers = ReadonlyMap<string, ReadonlySet<string>>;

/** Where the completions of a prompt have their answer. */
export interface AnswerForm {
  readonly answer: AnswerPlace;
  readonly examples: PromptAnswers; // those of the prompt, from `answersIn`
  readonly isBegun: boolean; // the prompt ends in the opening tag
  readonly stop: readonly string[]; // texts that end sampling
}

/**
 * The answer in a completion: the whole text but for its stop sequence, or the text in the last complete pair of tags
 * near its end. An echo of the prompt's own examples is not an answer.
 *
 * @param completion the sampled text without the prompt, but with its stop sequence.
 * @returns undefined if there is no answer.
 */
export function answerText(form: AnswerForm, completion: string): string | undefined {
  const { answer: place, isBegun, examples, stop } = form;
  const read = completion.slice(-maxReadChars);
  if (place !== 'whole') {
    const isInView = isBegun && read.length === completion.length;
    return lastBlock(isInView ? place.open + read : read, place, examples);
  }
  const text = withoutStop(read, stop);
  return trimBlanks(text) === '' ? undefined : text;
}

/** The text before its first stop text: the token that completes it may go on after it. */
function withoutStop(text: string, stop: readonly string[]): string {
  const places = stop.map((each) => text.indexOf(each)).filter((place) => place !== -1);
  return text.slice(0, Math.min(text.length, ...places));
}

/** Whether a prompt ends in an opening tag, blanks aside, so that its completion begins with the answer. */
export function endsInOpenTag(place: AnswerPlace, prompt: string): boolean {
  if (place === 'whole') return false;
  const { open, close } = place;
  const parts = prompt.split(open);
  const isOpen = open === close ? parts.length % 2 === 0 : parts.length > 1;
  const after = parts.at(-1)!;
  return isOpen && trimBlanks(after) === '' && !after.includes(close);
}

/** Enough to distinguish the prompt's words from the policy's, and few enough to detect a partial echo. */
const leadChars = 8;
/** For a lead with a number, such as `3 = 21. `, which stands before many a right answer too. */
const numericLeadChars = 16;

/**
 * The answers that a prompt shows, each with up to 8 characters before it, or 16 where those have a digit: after `xample: ` the block is
 * the example, after other text it is an answer.
 *
 * Each character is searched at most three times, because a request may contain its own prompt.
 *
 * @returns such as `<answer>(1+2)/3</answer>` → {`xample: `}.
 */
export function answersIn(place: AnswerPlace, prompt: string): PromptAnswers {
  const found = new Map<string, Set<string>>();
  if (place === 'whole') return found;
  const { open: opening, close: closing } = place;
  for (let from = 0; ;) {
    const first = prompt.indexOf(opening, from);
    const close = first === -1 ? -1 : prompt.indexOf(closing, first + opening.length);
    if (close === -1) return found;
    // Search the opening tag backwards from the closing one, never from the start of the text.
    const open = first + Math.max(0, prompt.slice(first, close).lastIndexOf(opening));
    from = close + closing.length;
    const block = prompt.slice(open, from);
    const leads = found.get(block);
    if (leads === undefined) found.set(block, new Set([leadTo(prompt, open)]));
    else leads.add(leadTo(prompt, open));
  }
}

function leadTo(prompt: string, place: number): string {
  const lead = endBefore(prompt, place, leadChars);
  return /\d/.test(lead) ? endBefore(prompt, place, numericLeadChars) : lead;
}

/** The end of the text before a place; a Chinese character counts as three Latin ones. */
function endBefore(prompt: string, place: number, most: number): string {
  let start = place;
  for (let chars = 0; start > 0; start--) {
    chars += prompt[start - 1]! >= '\u2e80' ? 3 : 1;
    if (chars > most) break;
  }
  return prompt.slice(start, place).trimStart();
}

/** Searches from the end, in time linear in the text: each step ends before the part already searched. */
function lastBlock(
  text: string,
  { open: opening, close: closing }: Tags,
  examples: PromptAnswers,
): string | undefined {
  for (let end = text.length; ;) {
    const close = end < closing.length ? -1 : text.lastIndexOf(closing, end - closing.length);
    if (close < opening.length) return undefined;
    const open = text.lastIndexOf(opening, close - opening.length);
    if (open === -1) return undefined;
    const start = open + opening.length;
    const stop = text.indexOf(closing, start);
    const leads = examples.get(text.slice(open, stop + closing.length));
    if (leads === undefined || !endsWithOneOf(text, open, leads)) return text.slice(start, stop);
    end = open;
  }
}

/** Whether one of the leads is right before `place`. */
function endsWithOneOf(text: string, place: number, leads: ReadonlySet<string>): boolean {
  for (let chars = 0; chars <= Math.min(numericLeadChars, place); chars++) {
    if (leads.has(text.slice(place - chars, place))) return true;
  }
  return false;
}
