import { UserError } from '../../shared/base/errors.js';
import { type GroupsWithSignal, signalShares, withStepGroups } from '../../shared/rl/signal.js';
import type { TaskProblem } from '../../shared/tasks/dataset.js';
import { EpochOrder } from './epoch-order.js';

/** The problems to train on, by their indexes. None of the lists is empty. */
export interface Difficulties {
  readonly byName: ReadonlyMap<string, readonly number[]>; // at least two, in order of their names
  readonly rehearsed?: readonly number[]; // of any difficulty; they keep their share of the tickets
}

/** @throws {UserError} if there is only one difficulty. */
export function difficultiesOf(
  problems: readonly Pick<TaskProblem, 'difficulty' | 'isRehearsed'>[],
): Difficulties {
  const rehearsed = problems.flatMap(({ isRehearsed }, i) => (isRehearsed === true ? [i] : []));
  const names = new Set(problems.flatMap((it) => (it.isRehearsed === true ? [] : it.difficulty)));
  if (names.size < 2) {
    throw new UserError(
      `--curriculum signal chooses between difficulties, but all problems to train on have one, ${[...names].join()}; ` +
        'give problems of several, such as --numbers 3,4, or choose --curriculum data',
    );
  }
  const byName = new Map<string, number[]>([...names].sort().map((name) => [name, []]));
  problems.forEach(({ difficulty, isRehearsed }, i) => {
    if (isRehearsed !== true) byName.get(difficulty)!.push(i);
  });
  return { byName, ...(rehearsed.length > 0 && { rehearsed }) };
}

/** What is known of the difficulties: of each, its latest groups and those of them with signal. */
export type DifficultyResults = readonly (readonly [
  name: string,
  groups: number,
  withSignal: number,
])[];

/**
 * The problems of a difficulty in a random order. A position is a ticket's place in the whole run, not among the
 * tickets of this difficulty. So an epoch of this order lasts as many tickets of the run as there are problems here:
 * no problem comes twice in it, and the problems whose position goes to another difficulty are left out.
 */
class DifficultyOrder {
  readonly #order: EpochOrder;

  constructor(
    seed: number,
    readonly problems: readonly number[],
  ) {
    this.#order = new EpochOrder(seed, problems.length);
  }

  problemAt(order: number): number {
    return this.problems[this.#order.problemAt(order)]!;
  }
}

/**
 * Chooses a difficulty by the share of its latest groups with signal, and a problem of it. So training starts with what
 * gives a signal already, and harder problems come once they do.
 *
 * Results change the choice only once `use` is called with them, since a ticket must keep its problem across crashes.
 */
export class DifficultyMix {
  readonly #orders: ReadonlyMap<string, DifficultyOrder>;
  readonly #rehearsed: DifficultyOrder | undefined;
  readonly #rehearsedShare: number;
  readonly #nameOf = new Map<number, string>(); // of the difficulty of a problem; not of one that is rehearsed
  readonly #results: Map<string, GroupsWithSignal>; // of all steps but the latest
  readonly #ofStep = new Map<string, GroupsWithSignal>();
  #shares: readonly number[] = []; // of the difficulties, in their order

  constructor(seed: number, { byName, rehearsed }: Difficulties, past: DifficultyResults) {
    this.#orders = new Map(
      [...byName].map(([name, problems]) => [name, new DifficultyOrder(seed, problems)]),
    );
    for (const [name, problems] of byName) for (const i of problems) this.#nameOf.set(i, name);
    this.#rehearsed = rehearsed && new DifficultyOrder(seed, rehearsed);
    const rehearsedSize = rehearsed?.length ?? 0;
    this.#rehearsedShare = rehearsedSize / (rehearsedSize + this.#nameOf.size);
    this.#results = countsOf(past);
    this.use(past);
  }

  /** Adds the result of a group of a problem that was not replayed; it counts from the end of the step on. */
  record(problem: number, hasSignal: boolean): void {
    const name = this.#nameOf.get(problem);
    if (name === undefined) return;
    const { groups, withSignal } = this.#ofStep.get(name) ?? { groups: 0, withSignal: 0 };
    this.#ofStep.set(name, {
      groups: groups + 1,
      withSignal: withSignal + (hasSignal ? 1 : 0),
    });
  }

  endStep(): void {
    for (const [name, ofStep] of this.#ofStep) {
      this.#results.set(name, withStepGroups(this.#results.get(name), ofStep));
    }
    this.#ofStep.clear();
  }

  get results(): DifficultyResults {
    return [...this.#results].map(([name, { groups, withSignal }]) => [name, groups, withSignal]);
  }

  use(results: DifficultyResults): void {
    const counts = countsOf(results);
    this.#shares = signalShares(
      [...this.#orders].map(([name, { problems }]) => ({
        problems: problems.length,
        counts: counts.get(name),
      })),
    );
  }

  /**
   * Returns the index of the problem at a position of the sequence of tickets.
   *
   * @param chance uniform in [0, 1).
   */
  problemAt(order: number, chance: number): number {
    const share = this.#rehearsedShare;
    if (chance < share) return this.#rehearsed!.problemAt(order);
    let rest = (chance - share) / (1 - share);
    const index = this.#shares.findIndex((each) => (rest -= each) < 0);
    return [...this.#orders.values()].at(index)!.problemAt(order); // -1, by rounding, is the last
  }

  /** Whether some results would put this problem at this position. */
  mayBeAt(order: number, problem: number): boolean {
    const orders = [...this.#orders.values(), ...(this.#rehearsed ? [this.#rehearsed] : [])];
    return orders.some((it) => it.problemAt(order) === problem);
  }
}

function countsOf(results: DifficultyResults): Map<string, GroupsWithSignal> {
  return new Map(results.map(([name, groups, withSignal]) => [name, { groups, withSignal }]));
}
