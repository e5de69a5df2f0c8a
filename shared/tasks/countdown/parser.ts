import { isBlank } from '../answer-place.js';
import * as rational from '../rational.js';
import type { Rational } from '../rational.js';

export const operators = ['+', '-', '*', '/'] as const;
export type Operator = (typeof operators)[number];

/** An arithmetic expression; a leaf is a non-negative integer. */
export type Expression = number | Operation | Negation;

interface Operation {
  readonly operator: Operator;
  readonly left: Expression;
  readonly right: Expression;
}

/** The minus sign in front of a number or parenthesis. */
interface Negation {
  readonly negated: Expression;
}

/** The exact value, or undefined on a division by zero. */
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
 * The expression as text without blanks, with parentheses only where the value needs them:
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

/** A non-negative integer, or one of the characters `+-*` `/()`. */
export type Token = number | '+' | '-' | '*' | '/' | '(' | ')';

/** The reason why a text is not an expression. */
export type Refusal = 'too_long' | 'too_deep' | 'bad_token' | 'bad_syntax' | 'unbalanced';

/** Bounds the cost of one answer, which is linear in its characters. */
export const maxChars = 1_000;
export const maxDepth = 32; // of nested parentheses and signs
const maxDigits = 15; // of a number, so that a double represents it exactly

/**
 * The tokens of a text: integers without leading zeros, operators and parentheses, with blanks, tabs
 * and line ends between them. Any other character is refused, including Unicode digits and minus
 * signs, decimal points, exponents and hexadecimal.
 */
export function tokenize(text: string): Token[] | Refusal {
  if (text.length > maxChars) return 'too_long';
  const tokens: Token[] = [];
  for (let i = 0; i < text.length;) {
    const char = text[i]!;
    if (isDigit(char)) {
      let end = i + 1;
      while (end < text.length && isDigit(text[end]!)) end++;
      if (end - i > maxDigits) return 'too_long';
      if (char === '0' && end > i + 1) return 'bad_token';
      tokens.push(Number(text.slice(i, end)));
      i = end;
    } else {
      if (isSymbol(char)) tokens.push(char);
      else if (!isBlank(char)) return 'bad_token';
      i++;
    }
  }
  return tokens;
}

/**
 * Parses the tokens by recursive descent:
 *
 *     sum     = product { ("+" | "-") product }
 *     product = factor { ("*" | "/") factor }
 *     factor  = number | "-" factor | "(" sum ")"
 *
 * A minus sign is allowed in front of any factor, because a chain such as `-3+7*21` is valid arithmetic;
 * it makes no further target from 0 on reachable. Unary `+`, `**`, `//` and implicit products are
 * refused.
 */
export function parse(tokens: readonly Token[]): Expression | Refusal {
  let position = 0;
  let depth = 0;

  function sum(): Expression | Refusal {
    let left = product();
    while (typeof left !== 'string') {
      const operator = tokens[position];
      if (operator !== '+' && operator !== '-') break;
      position++;
      const right = product();
      left = typeof right === 'string' ? right : { operator, left, right };
    }
    return left;
  }

  function product(): Expression | Refusal {
    let left = factor();
    while (typeof left !== 'string') {
      const operator = tokens[position];
      if (operator !== '*' && operator !== '/') break;
      position++;
      const right = factor();
      left = typeof right === 'string' ? right : { operator, left, right };
    }
    return left;
  }

  function factor(): Expression | Refusal {
    const token = tokens[position++];
    if (typeof token === 'number') return token;
    if (token !== '-' && token !== '(') return 'bad_syntax';
    if (++depth > maxDepth) return 'too_deep';
    let inner: Expression | Refusal;
    if (token === '-') {
      const negated = factor();
      inner = typeof negated === 'string' ? negated : { negated };
    } else {
      inner = sum();
      if (typeof inner !== 'string' && tokens[position++] !== ')') return 'bad_syntax';
    }
    depth--;
    return inner;
  }

  if (!isBalanced(tokens)) return 'unbalanced';
  const expression = sum();
  return typeof expression !== 'string' && position < tokens.length ? 'bad_syntax' : expression;
}

function isBalanced(tokens: readonly Token[]): boolean {
  let open = 0;
  for (const token of tokens) {
    if (token === '(') open++;
    if (token === ')' && --open < 0) return false;
  }
  return open === 0;
}

function isDigit(char: string): boolean {
  return char >= '0' && char <= '9';
}

function isSymbol(char: string): char is '+' | '-' | '*' | '/' | '(' | ')' {
  return '+-*/()'.includes(char);
}
