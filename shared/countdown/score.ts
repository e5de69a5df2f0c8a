import type { RewardSpec } from '../wire/run-config.js';
import type { Score } from '../wire/scored-group.js';
import { extractAnswer } from './answer.js';
import { evaluate } from './expression.js';
import { parse, tokenize, type Refusal, type Token } from './parser.js';
import type { Problem } from './problem.js';
import type { PromptStyle } from './prompts.js';
import * as rational from './rational.js';
import type { Rational } from './rational.js';

/** Everything that a score can say of an answer. */
export type Reason =
  'correct' | 'wrong_value' | 'no_answer' | 'wrong_numbers' | 'division_by_zero' | Refusal;

/**
 * The reward of one completion, in four stages: format → numbers → parse → value. The first stage
 * that fails names the reason.
 *
 * With f = `formatScore`, y the answer's value and all arithmetic exact:
 * - correct: 1; no answer at all: 0;
 * - otherwise, by shaping: none 0; constant f; continuous f for what has no value or not the right
 *   numbers, and f + (1 - f) / (1 + |y - target|) for a valid expression of another value.
 *
 * Source: TuFT's Countdown guide, §3.2, which compares floats within 1e-5 where this is exact.
 *
 * @param completion the sampled text alone, without the prompt.
 */
export function scoreAnswer(
  style: PromptStyle,
  problem: Problem,
  completion: string,
  reward: RewardSpec,
): Score {
  const answer = extractAnswer(style, problem, completion);
  const judged = answer === undefined ? 'no_answer' : judge(answer, problem);
  if (typeof judged === 'string') {
    const hasFormat = judged !== 'no_answer';
    const value =
      hasFormat && reward.shaping !== 'none' ? rational.decimal(reward.formatScore) : rational.zero;
    return { ...amount(value), hasFormat, isValid: false, isCorrect: false, reason: judged };
  }
  const error = rational.absolute(rational.subtract(judged, rational.integer(problem.target)));
  const isCorrect = error.numerator === 0n;
  return {
    ...amount(isCorrect ? rational.one : consolation(error, reward)),
    hasFormat: true,
    isValid: true,
    isCorrect,
    reason: isCorrect ? 'correct' : 'wrong_value',
  };
}

/** The value of an answer that uses the numbers as it must, or what is wrong with it. */
function judge(answer: string, problem: Problem): Rational | Exclude<Reason, 'correct'> {
  const tokens = tokenize(answer);
  if (typeof tokens === 'string') return tokens;
  // Before parsing, as in TuFT; it also bounds the size of everything that is computed after.
  if (!usesExactly(tokens, problem.numbers)) return 'wrong_numbers';
  const expression = parse(tokens);
  if (typeof expression === 'string') return expression;
  return evaluate(expression) ?? 'division_by_zero';
}

function usesExactly(tokens: readonly Token[], numbers: readonly number[]): boolean {
  const used = tokens.filter((token) => typeof token === 'number').sort((a, b) => a - b);
  const given = numbers.toSorted((a, b) => a - b);
  return used.length === given.length && used.every((number, i) => number === given[i]);
}

/** What a valid expression earns whose value misses the target by `error`. */
function consolation(error: Rational, { formatScore, shaping }: RewardSpec): Rational {
  if (shaping === 'none') return rational.zero;
  const floor = rational.decimal(formatScore);
  if (shaping === 'constant') return floor;
  const headroom = rational.subtract(rational.one, floor);
  const { numerator, denominator } = rational.add(rational.one, error);
  const share = { numerator: denominator, denominator: numerator }; // 1 / (1 + error)
  return rational.add(floor, rational.multiply(headroom, share));
}

function amount(value: Rational): Pick<Score, 'reward' | 'exactReward'> {
  return { reward: rational.toNumber(value), exactReward: rational.fractionText(value) };
}
