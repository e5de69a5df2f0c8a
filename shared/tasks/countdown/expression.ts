import * as rational from '../rational.js';
import type { Rational } from '../rational.js';

export const operators = ['+', '-', '*', '/'] as const;
export type Operator = (typeof operators)[number];

/** An arithmetic expression; a leaf is a non-negative integer. */
export type Expression = number | Operation | Negation;

export interface Operation {
  readonly operator: Operator;
  readonly left: Expression;
  readonly right: Expression;
}

/** The minus sign in front of a number or parenthesis. */
export interface Negation {
  readonly negated: Expression;
}

/** The exact value, or undefined when something is divided by zero. */
export function evaluate(expression: Expression): Rational | undefined {
  if (typeof expression === 'number') return rational.integer(expression);
  if ('negated' in expression) {
    const value = evaluate(expression.negated);
    return value && rational.negate(value);
  }
  const left = evaluate(expression.left);
  const right = evaluate(expression.right);
  if (left === undefined || right === undefined) return undefined;
  switch (expression.operator) {
    case '+':
      return rational.add(left, right);
    case '-':
      return rational.subtract(left, right);
    case '*':
      return rational.multiply(left, right);
    case '/':
      return rational.divide(left, right);
  }
}

/**
 * The expression as text without blanks, in parentheses only where its value would change without:
 * `a+(b-c)` prints as `a+b-c`, `a-(b-c)` as it is.
 */
export function print(expression: Expression): string {
  if (typeof expression === 'number') return String(expression);
  if ('negated' in expression) {
    const { negated } = expression;
    return isOperation(negated) ? `-(${print(negated)})` : `-${print(negated)}`;
  }
  const { operator, left, right } = expression;
  const isTerm = operator === '*' || operator === '/';
  const leftNeeds = isTerm && isSum(left);
  const rightNeeds = (operator !== '+' && isSum(right)) || (operator === '/' && isOperation(right));
  return (
    (leftNeeds ? `(${print(left)})` : print(left)) +
    operator +
    (rightNeeds ? `(${print(right)})` : print(right))
  );
}

function isOperation(expression: Expression): expression is Operation {
  return typeof expression !== 'number' && 'operator' in expression;
}

function isSum(expression: Expression): boolean {
  return isOperation(expression) && (expression.operator === '+' || expression.operator === '-');
}
