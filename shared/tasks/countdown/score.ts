import { createHash } from 'node:crypto';
import type { Score } from '../../wire/scored-group.js';
import { answerText, maxReadChars, trimBlanks, type AnswerForm } from '../answer-place.js';
import { answerFormOf } from '../prompt-template.js';
import * as rational from '../rational.js';
import type { Rational } from '../rational.js';
import { evaluate, parse, tokenize, type Refusal, type Token } from './parser.js';
import type { Problem } from './problem.js';
import type { CountdownPrompt, RewardSpec } from './spec.js';

/** Where a completion has its answer, and whether that may end in the target. */
type CountdownForm = AnswerForm & Pick<CountdownPrompt, 'allowsTargetTail'>;

export function answerForm(prompt: CountdownPrompt): CountdownForm {
  return { ...answerFormOf(prompt), allowsTargetTail: prompt.allowsTargetTail };
}

/**
 * Extracts the expression that a completion gives as its answer.
 *
 * @param completion the sampled text without the prompt, but with its stop sequence.
 * @param targetTail whether a tail `= target` is removed before scoring.
 * @returns the expression's text; undefined if there is no answer.
 */
export function extractAnswer(
  form: CountdownForm,
  problem: Pick<Problem, 'target'>,
  completion: string,
  targetTail: RewardSpec['targetTail'] = 'by_style',
): string | undefined {
  const answer = answerText(form, completion);
  const takesTail = targetTail === 'accept' || (targetTail === 'by_style' && form.allowsTargetTail);
  return takesTail && answer !== undefined ? withoutTargetTail(answer, problem.target) : answer;
}

function withoutTargetTail(answer: string, target: number): string {
  const equals = answer.lastIndexOf('=');
  const hasTail = equals !== -1 && trimBlanks(answer.slice(equals + 1)) === String(target);
  return hasTail ? answer.slice(0, equals) : answer;
}

/** The outcomes of scoring an answer. */
type Reason =
  | 'correct'
  | 'wrong_value'
  | 'no_answer'
  | 'wrong_numbers'
  | 'division_by_zero'
  | Refusal;

/**
 * The reward of one completion, in four stages: format → numbers → parse → value. The first stage
 * that fails names the reason.
 *
 * With f = `formatScore`, y the answer's value and all arithmetic exact:
 * - correct: 1; no answer at all: 0;
 * - shaping random, a control that teaches nothing of the task: 0 or 1, whatever the answer is worth;
 * - otherwise, by shaping: none 0; constant f; continuous f for an answer without a value or with
 *   wrong numbers, and f + (1 - f) / (1 + |y - target|) for a valid expression with another value.
 *
 * Source: TuFT's Countdown guide, §3.2; `scoring.md` has the full rules and the differences.
 *
 * @param completion the sampled text without the prompt.
 */
export function scoreAnswer(
  form: CountdownForm,
  problem: Problem,
  completion: string,
  reward: RewardSpec,
): Score {
  const score = judgeAnswer(form, problem, completion, reward);
  return reward.shaping === 'random' ? { ...score, ...amount(coin(problem, completion)) } : score;
}

function judgeAnswer(
  form: CountdownForm,
  problem: Problem,
  completion: string,
  reward: RewardSpec,
): Score {
  const answer = extractAnswer(form, problem, completion, reward.targetTail);
  if (answer === undefined) {
    const reason: Reason = completion.length > maxReadChars ? 'too_long' : 'no_answer';
    return { ...amount(rational.zero), hasFormat: false, isValid: false, isCorrect: false, reason };
  }
  const value = valueOf(answer, problem, reward.numbersToUse);
  if (typeof value === 'string') {
    return {
      ...amount(reward.shaping === 'none' ? rational.zero : rational.decimal(reward.formatScore)),
      hasFormat: true,
      isValid: false,
      isCorrect: false,
      reason: value,
    };
  }
  const error = rational.absolute(rational.subtract(value, rational.integer(problem.target)));
  const isCorrect = error.numerator === 0n;
  return {
    ...amount(isCorrect ? rational.one : consolation(error, reward)),
    hasFormat: true,
    isValid: true,
    isCorrect,
    reason: isCorrect ? 'correct' : 'wrong_value',
    value: rational.fractionText(value),
  };
}

/** The value of an answer that uses the numbers correctly, or the reason why it is wrong. */
function valueOf(
  answer: string,
  { numbers }: Problem,
  numbersToUse: RewardSpec['numbersToUse'],
): Rational | Exclude<Reason, 'correct'> {
  const tokens = tokenize(answer);
  if (typeof tokens === 'string') return tokens;
  // Checked before parsing, as in TuFT; this also bounds the size of all later computation.
  if (!usesAllowedNumbers(tokens, numbers, numbersToUse)) return 'wrong_numbers';
  const expression = parse(tokens);
  if (typeof expression === 'string') return expression;
  return evaluate(expression) ?? 'division_by_zero';
}

/** Whether the numbers are those of the problem, or with `some` a non-empty sub-multiset of them. */
function usesAllowedNumbers(
  tokens: readonly Token[],
  numbers: readonly number[],
  numbersToUse: RewardSpec['numbersToUse'],
): boolean {
  const left = [...numbers];
  for (const token of tokens) {
    if (typeof token !== 'number') continue;
    const at = left.indexOf(token);
    if (at === -1) return false;
    left.splice(at, 1);
  }
  return numbersToUse === 'all' ? left.length === 0 : left.length < numbers.length;
}

/** The reward of a valid expression whose value misses the target by `error`. */
function consolation(error: Rational, { formatScore, shaping }: RewardSpec): Rational {
  if (shaping === 'none') return rational.zero;
  const floor = rational.decimal(formatScore);
  if (shaping === 'constant') return floor;
  const headroom = rational.subtract(rational.one, floor);
  const { numerator, denominator } = rational.add(rational.one, error);
  const share = { numerator: denominator, denominator: numerator }; // 1 / (1 + error)
  return rational.add(floor, rational.multiply(headroom, share));
}

/** 0 or 1 with equal probability. A scorer is deterministic, so problem and completion determine the coin. */
function coin({ id }: Problem, completion: string): Rational {
  const digest = createHash('sha256').update(`${id}\n${completion}`).digest();
  return digest[0]! % 2 === 0 ? rational.zero : rational.one;
}

function amount(value: Rational): Pick<Score, 'reward' | 'exactReward'> {
  return { reward: rational.toNumber(value), exactReward: rational.fractionText(value) };
}
