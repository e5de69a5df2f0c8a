import { Counter, Gauge } from 'prom-client';
import { UserError } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { TrainingRun } from '../../shared/tinker/training-run.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import type { TicketTable } from '../groups/ticket-table.js';
import { unweightedDatum } from '../step/datums.js';

const streak = new Gauge({
  name: 'rl_not_finite_streak_groups',
  help: 'Groups in a row that actors could not send, because their logprobs are no finite numbers.',
});

const contradictions = new Counter({
  name: 'rl_not_finite_contradictions_total',
  help: 'Times that a batch of groups in a row had logprobs that are not finite, and those of the trainer were finite.',
});

/** Answers in a row that were none, because the logprobs of their tokens are no finite numbers. */
export interface Breakage {
  readonly groups: number;
  readonly version: number; // of the policy that drew the last of them
  readonly isContradicted: boolean; // the trainer's own logprobs are finite
}

/** A batch may be a single group, and that proves little. */
const leastGroups = 8;

/** So often the trainer contradicts the actors before a run without any group makes no sense. */
const maxContradictions = 10;

/** A prompt and an answer to try the policy on. */
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

/** Before any group has come: every model has these tokens. */
const firstProbe: Probe = {
  promptTokens: Int32Array.of(0),
  rollouts: [{ tokens: Int32Array.of(1, 0) }],
};

export interface BrokenPolicyOptions {
  readonly groupsPerBatch: number;
  /** Of this session: dead letters of earlier ones are told again. */
  readonly firstVersion: number;
  /** Whether the trainer's own logprobs of these tokens are not finite. */
  readonly isBroken: (probe: Probe) => Promise<boolean>;
  readonly log: Logger;
}

/**
 * Notices that the policy is broken where no step can show it: when all that is sampled with it is refused,
 * tickets would die and be replaced for ever. That is so in synchronous training, and in any other once the
 * groups of older policies are used up.
 *
 * A single actor that computes wrongly, or says so, must not end a run, however fast it is with that while
 * others still sample. So it takes a batch of such answers in a row, then one from every ticket that was out
 * by then, without a group in between; and then the trainer is asked for logprobs of its own. While these
 * are finite, the run goes on, for ten such batches.
 */
export class BrokenPolicyWatch {
  readonly #options: BrokenPolicyOptions;
  readonly #limit: number;
  readonly #over = new AbortController();
  #breakage: Breakage = none;
  #outBelow = 0; // tickets of lower orders were out when the batch was full
  #probe = firstProbe;
  #contradictions = 0;
  #asking: Promise<void> | undefined;

  constructor(options: BrokenPolicyOptions) {
    this.#options = options;
    this.#limit = Math.max(leastGroups, options.groupsPerBatch);
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
   * @param table which the ticket has left.
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
        ({ order, state }) => order < this.#outBelow && (state === 'issued' || state === 'stale'),
      );
    if (groups >= this.#limit && !isWaitedFor) this.#asking ??= this.#ask();
  }

  /** A group came, so its logprobs are numbers. */
  arrived(group: Probe): void {
    if (this.#over.signal.aborted) return;
    const { promptTokens, rollouts } = group;
    this.#probe = { promptTokens, rollouts: rollouts.slice(0, 1) };
    this.#contradictions = 0;
    this.#reset();
  }

  /** Asks the trainer. A group that comes meanwhile has answered the question. */
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
          'actors cannot send groups, since their logprobs are not finite, but those of the trainer are',
        );
        if (this.#contradictions < maxContradictions) {
          this.#reset();
          return;
        }
        this.#breakage = { ...this.#breakage, isContradicted: true };
      }
      this.#over.abort();
    } catch {
      // Whoever trains hears of what the backend cannot do, too.
    } finally {
      this.#asking = undefined;
    }
  }

  #reset(): void {
    this.#breakage = none;
    streak.set(0);
  }
}

const none: Breakage = { groups: 0, version: 0, isContradicted: false };

/**
 * What is wrong with training, given that the watch is over.
 *
 * @throws {UserError} if nothing has been trained yet, so that training cannot have broken anything.
 */
export function breakageReason(
  { groups, version, isContradicted }: Breakage,
  hasTrained: boolean,
): string {
  const doubt = isContradicted ? ', say the actors, although those of the trainer are finite' : '';
  const reason = `the last ${groups} groups could not be used, since the logprobs that version ${version} gave them are not finite${doubt}`;
  if (hasTrained) return reason;
  throw new UserError(
    `${reason}, and nothing has been trained yet: check the weights in --model-dir, and that the actors have the same`,
  );
}
