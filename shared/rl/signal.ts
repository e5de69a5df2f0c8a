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

/** Counts of groups of a difficulty, and of those with signal; discounted ones are not integers. */
export interface GroupsWithSignal {
  readonly groups: number;
  readonly withSignal: number;
}

/**
 * The counts of a difficulty after another step; about the latest 256 groups determine them, because the policy
 * changes. The groups of one step count alike, since those without signal arrive before the others are trained on.
 */
export function withStepGroups(
  before: GroupsWithSignal | undefined,
  step: GroupsWithSignal,
): GroupsWithSignal {
  if (step.groups === 0) return before ?? step;
  const { groups, withSignal } = before ?? { groups: 0, withSignal: 0 };
  const kept = (1 - 1 / 256) ** step.groups;
  const added = 256 * (1 - kept); // the sum of the discounts of the step's groups
  return {
    groups: groups * kept + added,
    withSignal: withSignal * kept + (added * step.withSignal) / step.groups,
  };
}

/** A difficulty: the number of its problems, and the counts of its groups if it has any. */
interface DifficultySignal {
  readonly problems: number;
  readonly counts: GroupsWithSignal | undefined;
}

/**
 * The shares of the tickets that difficulties get: in proportion to their problems and to the share of their groups that
 * have signal, since a policy learns from no others. A tenth goes by the problems alone, so that a difficulty
 * without signal is tried again.
 *
 * @returns a share for each, with sum 1.
 */
export function signalShares(difficulties: readonly DifficultySignal[]): number[] {
  const total = difficulties.reduce((sum, { problems }) => sum + problems, 0);
  const weights = difficulties.map(({ problems, counts }) => {
    const { groups, withSignal } = counts ?? { groups: 0, withSignal: 0 };
    return (problems * (withSignal + 0.5)) / (groups + 1); // Jeffreys' prior, as above
  });
  const sum = weights.reduce((before, weight) => before + weight, 0);
  return difficulties.map(
    ({ problems }, i) => (0.1 * problems) / total + (0.9 * weights[i]!) / sum,
  );
}
