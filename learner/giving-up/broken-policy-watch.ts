import { Gauge } from 'prom-client';
import { UserError } from '../../shared/errors.js';
import type { GroupBook } from '../groups/group-book.js';

const streak = new Gauge({
  name: 'rl_not_finite_streak_groups',
  help: 'Groups in a row that actors could not send, because their logprobs are no finite numbers.',
});

/** Answers in a row that were none, because the logprobs of their tokens are no finite numbers. */
export interface Breakage {
  readonly groups: number;
  readonly version: number; // of the policy that drew the last of them
}

/** A batch may be a single group, and that proves little. */
const leastGroups = 8;

/**
 * Notices that the policy is broken where no step can show it: when all that is sampled with it is refused,
 * tickets would die and be replaced for ever. That is so in synchronous training, and in any other once the
 * groups of older policies are used up.
 *
 * A single actor that computes wrongly must not end a run, however fast it is with that while others still
 * sample. So it takes a batch of such answers in a row, and then one from every ticket that was out by
 * then, without a group in between.
 */
export class BrokenPolicyWatch {
  readonly #limit: number;
  readonly #firstVersion: number;
  readonly #over = new AbortController();
  #breakage: Breakage = { groups: 0, version: 0 };
  #outBelow = 0; // tickets of lower orders were out when the batch was full

  /** @param firstVersion of this life of the run: dead letters of earlier ones are told again. */
  constructor(groupsPerBatch: number, firstVersion: number) {
    this.#limit = Math.max(leastGroups, groupsPerBatch);
    this.#firstVersion = firstVersion;
  }

  /** Aborts when there is no doubt any more. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** The answers so far, since one was a group. */
  get breakage(): Breakage {
    return this.#breakage;
  }

  /**
   * A ticket's group could not be sent.
   *
   * @param version of the policy that sampled it.
   * @param book which the ticket has left.
   */
  died(version: number, book: Pick<GroupBook<unknown>, 'nextOrder' | 'entries'>): void {
    if (this.#over.signal.aborted || version < this.#firstVersion) return;
    const groups = this.#breakage.groups + 1;
    this.#breakage = { groups, version };
    streak.set(groups);
    if (groups === this.#limit) this.#outBelow = book.nextOrder;
    const isWaitedFor = book
      .entries()
      .some(
        ({ order, state }) => order < this.#outBelow && (state === 'issued' || state === 'stale'),
      );
    if (groups >= this.#limit && !isWaitedFor) this.#over.abort();
  }

  /** A group came, so its logprobs are numbers. */
  arrived(): void {
    if (this.#over.signal.aborted) return;
    this.#breakage = { groups: 0, version: 0 };
    streak.set(0);
  }
}

/**
 * What is wrong with training, given that the watch is over.
 *
 * @throws {UserError} if nothing has been trained yet, so that training cannot have broken anything.
 */
export function breakageReason({ groups, version }: Breakage, hasTrained: boolean): string {
  const reason = `the last ${groups} groups could not be used, since the logprobs that version ${version} gave them are not finite`;
  if (hasTrained) return reason;
  throw new UserError(
    `${reason}, and nothing has been trained yet: check the weights in --model-dir, and that the actors have the same`,
  );
}
