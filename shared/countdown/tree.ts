export const operators = ['+', '-', '*', '/'] as const;
export type Operator = (typeof operators)[number];

/** An arithmetic expression whose leaves are positions in a list of numbers. */
export type Tree =
  | { readonly operator: undefined; readonly index: number }
  | { readonly operator: Operator; readonly left: Tree; readonly right: Tree };

export function leaf(index: number): Tree {
  return { operator: undefined, index };
}

/**
 * The expression as text without blanks, in parentheses only where its value would change without:
 * `a+(b-c)` prints as `a+b-c`, `a-(b-c)` as it is.
 */
export function print(tree: Tree, numbers: readonly number[]): string {
  if (tree.operator === undefined) return String(numbers[tree.index]);
  const { operator, left, right } = tree;
  const before = print(left, numbers);
  const after = print(right, numbers);
  return (
    (isSum(left) && !isSum(tree) ? `(${before})` : before) +
    operator +
    (needsParentheses(operator, right) ? `(${after})` : after)
  );
}

function needsParentheses(operator: Operator, right: Tree): boolean {
  if (right.operator === undefined || operator === '+') return false;
  if (isSum(right)) return true;
  return operator === '/';
}

function isSum(tree: Tree): boolean {
  return tree.operator === '+' || tree.operator === '-';
}
