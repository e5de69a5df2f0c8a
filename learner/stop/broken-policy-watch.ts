import { Counter, Gauge } from 'prom-client';
import { UserError } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { TicketTable } from '../tickets/ticket-table.js';
import { unweightedDatum } from '../step/datums.js';

const streak = new Gauge({
  name: 'rl_not_finite_streak_groups',
  help: 'Groups in a row that actors could not send, because their logprobs are not finite.',
});

const contradictions = new Counter({
  name: 'rl_not_finite_contradictions_total',
  help: 'Times that a whole batch of groups had logprobs that are not finite although those of the trainer were finite.',
});

/** The groups in a row that could not be sent because their logprobs are not finite. */
export interface Breakage {
  readonly groups: number;
  readonly version: number; // of the policy that drew the last of them
  readonly isContradicted: boolean; // the trainer's own logprobs are finite
}

/** The least streak that counts, since a batch may be a single group, which proves little. */
const leastGroups = 8;

/** A run is given up after the trainer has contradicted the actors this many times without any group arriving. */
const maxContradictions = 10;

/** A prompt and answers whose logprobs are requested from the policy. */
export type Probe = Pick<RolloutGroup, 'promptTokens'> & {
  readonly rollouts: readonly Pick<RolloutGroup['rollouts'][number], 'tokens'>[];
};

/** Whether the policy in training gives the tokens of a group logprobs that are not finite. */
export async function isPolicyBroken(
  run: Pick<TrainingRun, 'forward'>,
  temperature: number,
  { promptTokens, rollouts }: Probe,
): Promise<boolean> {
  const data = rollouts.map(({ tokens }) => unweightedDatum(promptTokens, tokens));
  const { logprobs } = await run.forward(data, 'cross_entropy', { temperature });
  return logprobs.some((own) => own.some((logprob) => !Number.isFinite(logprob)));
}

/** The probe until a group has arrived: every model has these tokens. */
const firstProbe: Probe = {
  promptTokens: Int32Array.of(0),
  rollouts: [{ tokens: Int32Array.of(1, 0) }],
};

interface BrokenPolicyOptions {
  readonly groupsPerBatch: number;
  /** The first version of this session; dead letters of earlier sessions are read again and must not count. */
  readonly firstVersion: number;
  /** Whether any of the trainer's own logprobs of these tokens is not finite. */
  readonly isBroken: (probe: Probe) => Promise<boolean>;
  readonly log: Logger;
}

/**
 * Detects a broken policy that no step can reveal: when every group sampled with it is refused, no step is
 * made, and tickets would die and be replaced endlessly. This happens at once in synchronous training, and
 * otherwise once the groups of older policies are used up.
 *
 * A single actor that computes wrongly, or claims to, must not end a run, however fast it fails while others
 * still sample. So the trainer is asked for its own logprobs only after a batch of such failures in a row and a
 * failure of every ticket that was outstanding at that point, without a group in between. While the trainer's
 * logprobs are finite, the run continues, for up to ten such batches.
 */
export class BrokenPolicyWatch {
  readonly #options: BrokenPolicyOptions;
  readonly #limit: number;
  readonly #over = new AbortController();
  #breakage: Breakage = none;
  #outBelow = 0; // tickets of lower orders were outstanding when the batch was full
  #probe = firstProbe;
  #contradictions = 0;
  #question: Promise<void> | undefined;

  constructor(options: BrokenPolicyOptions) {
    this.#options = options;
    this.#limit = Math.max(leastGroups, options.groupsPerBatch);
  }

  /** Aborts when the policy is known to be broken, or the actors have been contradicted too often. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  /** The failures since the last group that arrived. */
  get breakage(): Breakage {
    return this.#breakage;
  }

  /**
   * Counts a ticket whose group could not be sent.
   *
   * @param version of the policy that sampled it.
   * @param table of tickets, without this one.
   */
  died(version: number, table: Pick<TicketTable<unknown>, 'nextOrder' | 'entries'>): void {
    if (this.#over.signal.aborted || version < this.#options.firstVersion) return;
    const groups = this.#breakage.groups + 1;
    this.#breakage = { groups, version, isContradicted: false };
    streak.set(groups);
    if (groups === this.#limit) this.#outBelow = table.nextOrder;
    const isWaitedFor = table
      .entries()
      .some(
        ({ order, state }) => order < this.#outBelow && (state === 'issued' || state === 'retry'),
      );
    if (groups >= this.#limit && !isWaitedFor) this.#question ??= this.#ask();
  }

  /** Resets the streak: a group arrived, so its logprobs are finite. */
  arrived(group: Probe): void {
    if (this.#over.signal.aborted) return;
    const { promptTokens, rollouts } = group;
    this.#probe = { promptTokens, rollouts: rollouts.slice(0, 1) };
    this.#contradictions = 0;
    this.#reset();
  }

  /** Asks the trainer for its own logprobs. Its answer is ignored if a group arrives in the meantime. */
  async #ask(): Promise<void> {
    const { isBroken, log } = this.#options;
    const { version } = this.#breakage;
    try {
      const isTrue = await isBroken(this.#probe);
      const { groups } = this.#breakage;
      if (groups < this.#limit) return;
      if (!isTrue) {
        this.#contradictions += 1;
        contradictions.inc();
        log.error(
          { groups, version, times: this.#contradictions, of: maxContradictions },
          'logprobs of actors not finite, those of the trainer finite',
        );
        if (this.#contradictions < maxContradictions) {
          this.#reset();
          return;
        }
        this.#breakage = { ...this.#breakage, isContradicted: true };
      }
      this.#over.abort();
    } catch {
      // Training runs into the same backend error and reports it.
    } finally {
      this.#question = undefined;
    }
  }

  #reset(): void {
    this.#breakage = none;
    streak.set(0);
  }
}

const none: Breakage = { groups: 0, version: 0, isContradicted: false };

/**
 * Why training is given up once the watch has aborted.
 *
 * @throws {UserError} if nothing has been trained yet, so that training cannot be the cause.
 */
export function breakageReason(
  { groups, version, isContradicted }: Breakage,
  hasTrained: boolean,
): string {
  const doubt = isContradicted
    ? ' according to the actors, although those of the trainer are finite'
    : '';
  const reason = `the last ${groups} groups could not be used, since the logprobs that version ${version} gave them are not finite${doubt}`;
  if (hasTrained) return reason;
  throw new UserError(
    `${reason}, and nothing has been trained yet: check the weights in --model-dir, and that the actors use the same weights`,
  );
}
