/** Discounted counts of rollouts and correct ones for a problem; not integers. */
export interface Attempts {
  readonly rollouts: number;
  readonly correct: number;
}

/**
 * The probability that a new group of a problem has signal: some of its answers are correct and some
 * are not, so that its advantages are not all 0.
 *
 * The solve rate p is taken as Beta(1/2 + correct, 1/2 + wrong), the posterior of Jeffreys' prior,
 * because most problems are solved nearly always or hardly ever. 1 - p^G - (1 - p)^G is averaged
 * over it, with E[p^G] = Π_{i<G} (a + i) / (a + b + i). So a problem solved 16 times out of 16
 * is not excluded: its solve rate may still be 95 %.
 *
 * @param groupSize G, at least 2.
 */
export function signalProbability({ rollouts, correct }: Attempts, groupSize: number): number {
  const a = 0.5 + correct;
  const b = 0.5 + rollouts - correct;
  let allCorrect = 1;
  let allWrong = 1;
  for (let i = 0; i < groupSize; i++) {
    allCorrect *= (a + i) / (a + b + i);
    allWrong *= (b + i) / (a + b + i);
  }
  return 1 - allCorrect - allWrong;
}

/** The counts of a problem after another group; each new group halves the weight of older ones. */
export function withGroup(before: Attempts | undefined, group: Attempts): Attempts {
  const { rollouts, correct } = before ?? { rollouts: 0, correct: 0 };
  return {
    rollouts: rollouts * discount + group.rollouts,
    correct: correct * discount + group.correct,
  };
}

/** Older answers count less, because the policy has changed since. */
const discount = 0.5;
