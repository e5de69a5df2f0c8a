import { createRandom } from '../../shared/base/random.js';
import type { CurriculumState } from '../../shared/wire/ledger.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import type { Attempt, TicketIds } from '../../shared/wire/ticket-ids.js';
import {
  Curriculum,
  type CurriculumOptions,
  type GroupResults,
  type TicketsSoFar,
} from './curriculum.js';
import { EpochOrder } from './epoch-order.js';

/** All fields of a ticket that do not depend on the version at which it is issued. */
export type TicketContent = Omit<Ticket, 'issuedAtVersion' | 'pinnedVersion'>;

type TicketSettings = Pick<
  RunConfig,
  'seed' | 'groupSize' | 'sampling' | 'sampleLag' | 'replayShare'
>;

/**
 * The run's sequence of training tickets. The problem and the seed of a ticket are functions of its order
 * and the run's configuration (and of the ledger, with difficulty-aware sampling), so the dataset cursor
 * of a checkpoint is a single number.
 */
export class TicketSource {
  readonly #config: TicketSettings;
  readonly #ids: TicketIds;
  readonly #problemIds: readonly string[];
  readonly #indexes: ReadonlyMap<string, number>;
  readonly #epochs: EpochOrder;
  readonly #curriculum: Curriculum | undefined;

  /**
   * @param parts the ids of the run's tickets, and `margin`, `state` and `difficulties` of its curriculum.
   */
  constructor(
    config: TicketSettings,
    problemIds: readonly string[],
    {
      ids,
      ...parts
    }: Pick<CurriculumOptions, 'margin' | 'state' | 'difficulties'> & { readonly ids: TicketIds },
  ) {
    this.#config = config;
    this.#ids = ids;
    this.#problemIds = problemIds;
    this.#indexes = new Map(problemIds.map((id, index) => [id, index]));
    const size = problemIds.length;
    this.#epochs = new EpochOrder(config.seed, size);
    if (config.replayShare > 0 || parts.difficulties !== undefined) {
      this.#curriculum = new Curriculum({ ...config, ...parts, size });
    }
  }

  /** Returns the ticket at a position of the sequence; `attempt` 1 is its only reissue, with another seed. */
  at(order: number, attempt: number): TicketContent {
    const { seed, groupSize, sampling } = this.#config;
    const random = createRandom(`${seed} ticket ${order} ${attempt}`);
    const problem = (this.#curriculum ?? this.#epochs).problemAt(order);
    return {
      v: 1,
      ticketId: this.#ids.of(order, attempt),
      order,
      problemId: this.#problemIds[problem]!,
      split: 'train',
      groupSize,
      samplingParams: {
        temperature: sampling.temperature,
        maxTokens: sampling.maxTokens,
        seed: random.int(2 ** 31),
      },
      attempt,
    };
  }

  /** Returns the order of a ticket; undefined if its id does not belong to the run. */
  orderOf(attempt: Attempt): number | undefined {
    return this.#ids.orderOf(attempt);
  }

  /** Returns the ticket as issued at a version; with a sample lag, only that version may sample it. */
  ticketAt(order: number, attempt: number, issuedAtVersion: number): Ticket {
    const pin = this.#config.sampleLag > 0 ? { pinnedVersion: issuedAtVersion } : {};
    return { ...this.at(order, attempt), issuedAtVersion, ...pin };
  }

  /** Whether a ticket's problem is final, so that the ticket may be issued. */
  isProblemFinal(order: number): boolean {
    return this.#curriculum?.isProblemFinal(order) ?? true;
  }

  /** Whether a ticket repeats a problem instead of taking the next one of the epoch. */
  isReplay({ order, problemId }: Pick<Ticket, 'order' | 'problemId'>): boolean {
    const problem = this.#indexes.get(problemId);
    return problem !== undefined && (this.#curriculum?.isReplay(order, problem) ?? false);
  }

  /** Records the result of a group that was trained on or skipped. */
  recordResult({ group, scores }: ScoredGroup): void {
    const problem = this.#indexes.get(group.ticket.problemId);
    if (problem === undefined) return; // cannot happen for an admitted group
    const correct = scores.filter(({ isCorrect }) => isCorrect).length;
    this.#curriculum?.record(group.ticket.order, problem, { rollouts: scores.length, correct });
  }

  /** Ends a step, all of whose results were recorded. */
  endStep(): void {
    this.#curriculum?.endStep();
  }

  /** The results of the groups so far, for a checkpoint of the current weights. */
  get results(): GroupResults {
    return this.#curriculum?.results ?? { tried: [] };
  }

  /** Returns the state for a checkpoint, and a function to call once the ledger has it. */
  checkpoint(
    table: TicketsSoFar,
    results: GroupResults,
  ): { state?: CurriculumState; written: () => void } {
    return this.#curriculum?.checkpoint(table, results) ?? { written: () => undefined };
  }
}
