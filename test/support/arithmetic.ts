import fc from 'fast-check';
import { operators, type Expression } from '../../shared/tasks/countdown/parser.js';

/** Arbitrary expressions over small numbers, negations and divisions by zero included. */
export const anyExpression: fc.Arbitrary<Expression> = fc.letrec<{ expression: Expression }>(
  (tie) => ({
    expression: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.nat(99),
      fc.record({
        operator: fc.constantFrom(...operators),
        left: tie('expression'),
        right: tie('expression'),
      }),
      fc.record({ negated: tie('expression') }),
    ),
  }),
).expression;

/** The numbers of an expression, from left to right. */
export function leaves(expression: Expression): number[] {
  if (typeof expression === 'number') return [expression];
  if ('negated' in expression) return leaves(expression.negated);
  return [...leaves(expression.left), ...leaves(expression.right)];
}
