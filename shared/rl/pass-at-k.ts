/**
 * The chance that at least one of `k` answers to a problem is right, estimated without bias from
 * `answers` independent ones: 1 - C(answers - correct, k) / C(answers, k). With k = 1 it is the share
 * of right answers.
 *
 * Source: Chen et al. 2021, arXiv:2107.03374, in its numerically stable product form.
 *
 * @param correct how many of the answers are right.
 * @throws {RangeError} unless 1 ≤ k ≤ answers and 0 ≤ correct ≤ answers.
 */
export function passAtK(k: number, correct: number, answers: number): number {
  if (!(k >= 1 && k <= answers)) {
    throw new RangeError(`passAtK: k is ${k}, of ${answers} answers`);
  }
  if (!(correct >= 0 && correct <= answers)) {
    throw new RangeError(`passAtK: ${correct} of ${answers} answers are correct`);
  }
  if (answers - correct < k) return 1; // fewer than k wrong answers
  let allWrong = 1;
  for (let n = answers - correct + 1; n <= answers; n++) allWrong *= 1 - k / n;
  return 1 - allWrong;
}

/** The values of k to report: powers of two below `answers`, and `answers` itself. */
export function passLevels(answers: number): number[] {
  const levels: number[] = [];
  for (let k = 1; k < answers; k *= 2) levels.push(k);
  return [...levels, answers];
}
