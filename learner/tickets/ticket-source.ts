import { createRandom } from '../../shared/base/random.js';
import type { CurriculumState } from '../../shared/wire/curriculum-state.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { ScoredGroup } from '../../shared/wire/scored-group.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import type { Attempt, TicketIds } from '../../shared/wire/ticket-ids.js';
import {
  Curriculum,
  type CurriculumOptions,
  type TicketsSoFar,
  type Tried,
  EpochOrder,
} from './curriculum.js';

/** What a ticket says, all but when it was issued and so by which version it is sampled. */
export type TicketContent = Omit<Ticket, 'issuedAtVersion' | 'pinnedVersion'>;

type TicketSettings = Pick<
  RunConfig,
  'seed' | 'groupSize' | 'sampling' | 'sampleLag' | 'replayShare'
>;

/**
 * The run's sequence of training tickets: every order has the same problem and seed whoever asks and
 * whenever, so the dataset cursor of a checkpoint is one number. They are functions of the run's
 * configuration alone, or with difficulty-aware sampling of that and of the ledger.
 */
export class TicketSource {
  readonly #config: TicketSettings;
  readonly #ids: TicketIds;
  readonly #problemIds: readonly string[];
  readonly #indexes: ReadonlyMap<string, number>;
  readonly #epochs: EpochOrder;
  readonly #curriculum: Curriculum | undefined;

  /**
   * @param past how many tickets a checkpoint decides ahead, what the last one kept, and the ids.
   */
  constructor(
    config: TicketSettings,
    problemIds: readonly string[],
    { ids, ...past }: Pick<CurriculumOptions, 'margin' | 'state'> & { readonly ids: TicketIds },
  ) {
    this.#config = config;
    this.#ids = ids;
    this.#problemIds = problemIds;
    this.#indexes = new Map(problemIds.map((id, index) => [id, index]));
    const size = problemIds.length;
    this.#epochs = new EpochOrder(config.seed, size);
    if (config.replayShare > 0) this.#curriculum = new Curriculum({ ...config, ...past, size });
  }

  /** The ticket at a position of the sequence; `attempt` 1 is its one reissue, with another seed. */
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
      samplingParams: { ...sampling, seed: random.int(2 ** 31) },
      attempt,
    };
  }

  /** The order of an attempt at one of these tickets; undefined where its id is not of the run. */
  orderOf(attempt: Attempt): number | undefined {
    return this.#ids.orderOf(attempt);
  }

  /** The same, issued when `issuedAtVersion` was to sample: no newer one may, where sampling lags. */
  issued(order: number, attempt: number, issuedAtVersion: number): Ticket {
    const pin = this.#config.sampleLag > 0 ? { pinnedVersion: issuedAtVersion } : {};
    return { ...this.at(order, attempt), issuedAtVersion, ...pin };
  }

  /** Whether it is settled for good what a ticket is about, so that it may be issued. */
  isSettled(order: number): boolean {
    return this.#curriculum?.isSettled(order) ?? true;
  }

  /** Whether a ticket is about another problem than an epoch would have in its place. */
  isReplay({ order, problemId }: Pick<Ticket, 'order' | 'problemId'>): boolean {
    return problemId !== this.#problemIds[this.#epochs.problemAt(order)];
  }

  /** A group was trained on or skipped, so it is among what the next checkpoint covers. */
  consumed({ group, scores }: ScoredGroup): void {
    const problem = this.#indexes.get(group.ticket.problemId);
    if (problem === undefined) return; // not possible of a group that was admitted
    const correct = scores.filter(({ isCorrect }) => isCorrect).length;
    this.#curriculum?.record(problem, { rollouts: scores.length, correct });
  }

  /** What is known of problems as of now, for a checkpoint of this moment. */
  get tried(): Tried {
    return this.#curriculum?.tried ?? [];
  }

  /** What a checkpoint keeps of the sequence, and what to call once the ledger has it. */
  checkpoint(table: TicketsSoFar, tried: Tried): { state?: CurriculumState; written: () => void } {
    return this.#curriculum?.checkpoint(table, tried) ?? { written: () => undefined };
  }
}
