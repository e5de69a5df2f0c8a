import type { NoSolution } from '../task.js';
import { beginsAnswer, type PromptTemplate } from '../prompt-template.js';
import { fractionText } from '../rational.js';
import { evaluate, parse, print, tokenize, type Expression } from './parser.js';
import type { Problem } from './problem.js';
import { solve } from './solver.js';
import type { CountdownPrompt, RewardSpec } from './spec.js';

/** More of them take the solver seconds. */
const mostNumbers = 4;

/**
 * A completion that solves a problem, in the form that the prompt asks for. Where the prompt has begun to think, it
 * shows the calculation step by step.
 *
 * @returns the reason if the problem has no solution, or too many numbers to search for one.
 */
export function solutionText(
  prompt: Pick<CountdownPrompt, 'text' | 'opening' | 'answer'>,
  problem: Problem,
  numbersToUse: RewardSpec['numbersToUse'],
): string | NoSolution {
  if (problem.solution === undefined && problem.numbers.length > mostNumbers) {
    return { reason: `with too many numbers to search (more than ${mostNumbers})` };
  }
  const found = problem.solution ?? solve(problem, numbersToUse)[0]?.text;
  if (found === undefined) return { reason: 'without a solution' };
  return placedAnswer(prompt, found, calculation(found));
}

/**
 * A completion that gives an answer in the form that a prompt asks for. If the prompt has begun to think, the thoughts
 * come first; if it has begun the answer, its tag is there already.
 *
 * @param thoughts lines that lead to the answer.
 */
function placedAnswer(
  template: Pick<PromptTemplate, 'text' | 'opening' | 'answer'>,
  answer: string,
  thoughts: readonly string[],
): string {
  const { text = '', opening, answer: place } = template;
  if (place === 'whole') return answer;
  if (beginsAnswer(template)) return `${answer}${place.close}`;
  const placed = `${place.open}${answer}${place.close}`;
  const prompt = `${text}${opening}`;
  const [, think] = /<(\w+)>\s*$/.exec(prompt) ?? [];
  if (think !== undefined) return ['', ...thoughts, `</${think}>`, placed].join('\n');
  // Words are separated by a blank, after `A:` but not after `答：`.
  return /[!-~]$/.test(prompt) ? ` ${placed}` : placed;
}

/** The steps of an expression, such as `7-3=4` and `21*4=84` for `21*(7-3)`. */
export function calculation(text: string): string[] {
  const tokens = tokenize(text);
  const expression = typeof tokens === 'string' ? tokens : parse(tokens);
  if (typeof expression === 'string') throw new Error(`${text} is no expression: ${expression}`);
  const steps: string[] = [];
  addSteps(expression, steps);
  return steps;
}

/** @returns the value as text, to be part of another step. */
function addSteps(expression: Expression, steps: string[]): string {
  if (typeof expression === 'number') return String(expression);
  const value = evaluate(expression);
  if (value === undefined) throw new Error(`${print(expression)} divides by 0`);
  const text = fractionText(value);
  if (!('negated' in expression)) {
    const [left, right] = [expression.left, expression.right].map((each) => addSteps(each, steps));
    steps.push(`${left}${expression.operator}${right}=${text}`);
  } else if (typeof expression.negated !== 'number') addSteps(expression.negated, steps);
  return value.denominator === 1n && value.numerator >= 0n ? text : `(${text})`;
}
