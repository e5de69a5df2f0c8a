import { z } from 'zod';

const count = z.int().nonnegative();
const share = z.number().min(0).max(1);

/** Solve rates on held-out problems: means over the problems that have answers. */
export const SolveRates = z.strictObject({
  problems: z.int().positive(),
  sampled: share, // share of correct answers at the sampling temperature
  greedy: share, // share of correct greedy answers
  passAt: z.record(z.string().regex(/^\d+$/), share), // by k: share of problems with a correct answer among k
});
export type SolveRates = z.infer<typeof SolveRates>;

/** Answers to each held-out problem, [P] in the dataset's order; 0 where a ticket died. */
export const Answers = z
  .strictObject({ correct: z.array(count), total: z.array(count) })
  .check(({ value: { correct, total }, issues }) => {
    const bad = total.findIndex((answers, i) => !(correct[i]! <= answers));
    if (correct.length === total.length && bad === -1) return;
    const message =
      bad === -1 ? `expected one for each of ${correct.length}` : `${correct[bad]} are correct`;
    issues.push({ code: 'custom', input: total, path: ['total', Math.max(0, bad)], message });
  });
export type Answers = z.infer<typeof Answers>;

/** The result of one evaluation of one policy version. */
export const EvalResult = z.strictObject({
  version: count, // the version that was measured
  lag: count, // versions that training had advanced when the last answer arrived
  seconds: z.number().nonnegative(),
  temperature: z.number().positive(), // of `sampled`
  samples: z.int().positive(), // answers to each problem at that temperature; plus one greedy
  ...SolveRates.shape,
  byDifficulty: z.array(z.strictObject({ difficulty: z.string().min(1), ...SolveRates.shape })),
  lost: count, // tickets that died
  answers: z.strictObject({ sampled: Answers, greedy: Answers }),
});
export type EvalResult = z.infer<typeof EvalResult>;
