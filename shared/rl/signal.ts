/** How often a problem was answered, and how often correctly; discounted, so not whole. */
export interface Attempts {
  readonly rollouts: number;
  readonly correct: number;
}

/**
 * The probability that a new group of a problem has signal: that some of its answers are correct and
 * some are not, so that its advantages are not all 0.
 *
 * The solve rate p is taken as Beta(1/2 + correct, 1/2 + wrong), the posterior of Jeffreys' prior,
 * since most problems are either nearly always or hardly ever solved. 1 - p^G - (1 - p)^G is averaged
 * over it, with E[p^G] = Π_{i<G} (a + i) / (a + b + i). So a problem that was solved 16 times of 16
 * is not written off: it may yet be at 95 %.
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

/** What is known of a problem after another group of it; older groups count half as much each time. */
export function withGroup(before: Attempts | undefined, group: Attempts): Attempts {
  const { rollouts, correct } = before ?? { rollouts: 0, correct: 0 };
  return {
    rollouts: rollouts * discount + group.rollouts,
    correct: correct * discount + group.correct,
  };
}

/** The policy that answered has changed since. */
const discount = 0.5;
