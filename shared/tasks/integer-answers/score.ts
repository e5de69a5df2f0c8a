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
 * The integers of a text in order: `72`, `-5`, `1,234`, `72.00`, and in other spellings `-$5`, `1{,}234`. The minus sign may be
 * typographic (U+2212), as in formatted text; after a digit or a parenthesis it is a subtraction. A part of another number is no
 * integer: 7.25, .75, 3/2, 5 1/2, 1e3, 10^3, 10³.
 */
export function integersIn(text: string): WrittenInteger[] {
  const plain = text.replaceAll(latexComma, ',').replaceAll(signedCurrency, '$1');
  return [...plain.matchAll(writtenNumber)].flatMap((match) => {
    const [written, sign, whole, fraction] = match;
    const digits = whole!.replaceAll(',', '');
    const end = match.index + written.length;
    const isPart =
      partBefore.test(plain.slice(Math.max(0, match.index - 3), match.index)) ||
      partAfter.test(plain.slice(end, end + 16));
    const isInteger = /^0*$/.test(fraction ?? '') && digits.length <= maxDigits && !isPart;
    const signed = sign === '' ? digits : `-${digits}`;
    return isInteger ? [{ text: written, value: BigInt(signed) }] : [];
  });
}

const writtenNumber = /((?:(?<![\d)]\$?)[-\u2212])?)(\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.(\d+))?/g;
const latexComma = /(?<=\d)(?:\{,\}|\\,|,\\!)(?=\d{3})/g;
const signedCurrency = /([-\u2212])\\?[$€£¥](?=\d)/g;
/** What is before a number that is the end of another one, and after one that is the beginning; `}{` is in LaTeX's fractions. */
const partBefore = /(?:^|[^.])\.$|\d\/$|\d[eE]\+?$|\^\{?$|\}\{$/;
const partAfter =
  /^\/\d|^[eE][-+]?\d|^\^\{?[-\u2212\w]|^\}\{|^ \d{1,6}\/\d|^ ?\\[dt]?frac|^[\u00b2\u00b3\u00b9\u2070-\u207f\u00bc-\u00be\u2150-\u215e]/;
