import { z } from 'zod';

const count = z.int().nonnegative();
const share = z.number().min(0).max(1);

/** How well some held-out problems are solved, exactly. Means over the problems that were answered. */
export const SolveRates = z.strictObject({
  problems: z.int().positive(),
  sampled: share, // of the answers at the sampling temperature
  greedy: share, // of the most probable answers
  passAt: z.record(z.string().regex(/^\d+$/), share), // by k: of problems, one of k answers is right
});
export type SolveRates = z.infer<typeof SolveRates>;

/** The answers to each held-out problem, [P] in the dataset's order; none where a ticket died. */
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

/** What one evaluation found out about one policy version. */
export const EvalResult = z.strictObject({
  version: count, // the one that was measured, whatever was newest meanwhile
  lag: count, // by how many versions training had gone on when the last answer came
  seconds: z.number().nonnegative(),
  temperature: z.number().positive(), // of `sampled`
  samples: z.int().positive(), // answers to each problem at that temperature; greedily there is one
  ...SolveRates.shape,
  byDifficulty: z.array(z.strictObject({ difficulty: z.string().min(1), ...SolveRates.shape })),
  lost: count, // tickets that died
  answers: z.strictObject({ sampled: Answers, greedy: Answers }),
});
export type EvalResult = z.infer<typeof EvalResult>;
