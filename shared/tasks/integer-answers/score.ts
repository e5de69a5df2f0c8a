import type { Score } from '../../wire/scored-group.js';
import { answerText, maxReadChars, trimBlanks, type AnswerForm } from '../answer-place.js';
import * as rational from '../rational.js';

/**
 * The reward of one completion: `1[correct] + p · (1[format] - 1)` for the format penalty p.
 *
 * The last integer of the answer counts, or without an answer in the right place, the last integer of
 * the whole completion. The format is right if the integer is alone in its place.
 *
 * Source: the Tinker cookbook's first RL recipe, on GSM8K, with p = 0.1.
 *
 * @param completion the sampled text without the prompt.
 */
export function scoreAnswer(
  form: AnswerForm,
  problem: { readonly answer: bigint },
  completion: string,
  { formatPenalty }: { readonly formatPenalty: number },
): Score {
  const answer = answerText(form, completion);
  const given = integersIn(answer ?? completion.slice(-maxReadChars)).at(-1);
  const hasFormat =
    given !== undefined && answer !== undefined && given.text === trimBlanks(answer);
  const isCorrect = given?.value === problem.answer;
  const penalty = hasFormat ? rational.zero : rational.decimal(formatPenalty);
  const reward = rational.subtract(isCorrect ? rational.one : rational.zero, penalty);
  return {
    reward: rational.toNumber(reward),
    exactReward: rational.fractionText(reward),
    hasFormat,
    isValid: given !== undefined,
    isCorrect,
    reason: given === undefined ? 'no_answer' : isCorrect ? 'correct' : 'wrong_value',
    ...(given !== undefined && { value: String(given.value) }),
  };
}

/** An integer in a text. */
interface WrittenInteger {
  readonly text: string; // such as `-1,234` or `72.0`
  readonly value: bigint;
}

const maxDigits = 30; // longer ones are not answers

/**
 * The integers of a text in order: `72`, `-5`, `1,234`, `72.00`. The minus sign may be typographic (U+2212), as in
 * formatted text; after a digit or a parenthesis it is a subtraction. A number with a fraction, such as 7.25, is not an integer.
 */
export function integersIn(text: string): WrittenInteger[] {
  return [...text.matchAll(writtenNumber)].flatMap(([written, sign, whole, fraction]) => {
    const digits = whole!.replaceAll(',', '');
    const isInteger = /^0*$/.test(fraction ?? '') && digits.length <= maxDigits;
    const signed = sign === '' ? digits : `-${digits}`;
    return isInteger ? [{ text: written, value: BigInt(signed) }] : [];
  });
}

const writtenNumber = /((?:(?<![\d)])[-\u2212])?)(\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.(\d+))?/g;
