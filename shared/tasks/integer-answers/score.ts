import * as rational from '../rational.js';
import {
  answerText,
  maxReadChars,
  trimBlanks,
  type AnswerPlace,
  type PromptAnswers,
} from '../answer-place.js';
import type { Score } from '../../wire/scored-group.js';
import { integersIn } from './integers.js';
import type { Problem } from './problem.js';
import type { IntegerAnswersSpec } from './spec.js';

/** Where a prompt's answers stand, and what of the prompt itself looks like one. */
export interface AnswerForm {
  readonly answer: AnswerPlace;
  readonly examples: PromptAnswers;
}

/**
 * The reward of one completion: `1[correct] + p · (1[format] - 1)` for the format penalty p.
 *
 * The last integer of the answer counts, or where there is no answer in the right place, that of the
 * whole completion. It has the format if it stands in its place alone.
 *
 * Source: the Tinker cookbook's first RL recipe, on GSM8K, with p = 0.1.
 *
 * @param completion the sampled text alone, without the prompt.
 */
export function scoreAnswer(
  { answer: place, examples }: AnswerForm,
  problem: Problem,
  completion: string,
  { formatPenalty }: IntegerAnswersSpec['reward'],
): Score {
  const answer = answerText(place, examples, completion);
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
