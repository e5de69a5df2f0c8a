import { answersIn, answerText, trimBlanks, type PromptAnswers } from '../answer-place.js';
import { shownText } from '../prompt-template.js';
import type { Problem } from './problem.js';
import type { CountdownPrompt, RewardSpec } from './spec.js';

/** Where a prompt's answers stand, and what of the prompt itself looks like one. */
export interface AnswerForm extends Pick<CountdownPrompt, 'answer' | 'allowsTargetTail'> {
  readonly examples: PromptAnswers;
}

export function answerForm(prompt: CountdownPrompt): AnswerForm {
  const { answer, allowsTargetTail } = prompt;
  return { answer, allowsTargetTail, examples: answersIn(answer, shownText(prompt)) };
}

/**
 * The expression that a completion gives as its answer.
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
  const answer = answerText(place, examples, completion);
  const takesTail = targetTail === 'accept' || (targetTail === 'by_style' && allowsTargetTail);
  return takesTail && answer !== undefined ? withoutTargetTail(answer, problem.target) : answer;
}

function withoutTargetTail(answer: string, target: number): string {
  const equals = answer.lastIndexOf('=');
  const hasTail = equals !== -1 && trimBlanks(answer.slice(equals + 1)) === String(target);
  return hasTail ? answer.slice(0, equals) : answer;
}
