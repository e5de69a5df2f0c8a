import { Changes } from '../../base/changes.js';
import { PermanentError, UserError } from '../../base/errors.js';
import { printable } from '../../base/printable.js';
import type { Broker } from '../../broker/broker.js';
import { consume } from '../../broker/consume.js';
import type { Logger } from '../../service/telemetry/logger.js';
import { alteredFields, type Ticket } from '../../wire/ticket.js';
import type { Answers, EvalResult } from '../../wire/eval-result.js';
import type { RunConfig } from '../run-config.js';
import { ScoredGroup } from '../../wire/scored-group.js';
import { type Attempt, randomPart } from '../../wire/ticket-ids.js';
import { solveRates, type EvalProblem } from './solve-rates.js';

interface EvaluatorOptions {
  readonly config: Pick<RunConfig, 'seed' | 'sampling' | 'groupSize'>;
  readonly problems: readonly EvalProblem[]; // held out
  readonly samples: number; // answers to each problem at the sampling temperature
  readonly publish: (ticket: Ticket, signal: AbortSignal) => Promise<void>;
  /** The newest version that actors can sample with. */
  readonly newestVersion: () => number;
  /** Actors whose answers do not count. */
  readonly isQuarantined: (actor: string) => boolean;
  readonly log: Logger;
}

/** Number of tickets of one evaluation; all of them may be outstanding at once. */
export function evaluationTickets(problems: number, samples: number, groupSize: number): number {
  return problems * (parts(samples, groupSize).length + 1);
}

interface OpenTicket {
  readonly ticket: Ticket;
  readonly problem: number; // its index among the problems
  readonly kind: keyof EvalResult['answers'];
}

/** An evaluation in progress: its outstanding tickets and the answers so far. */
interface Running {
  readonly version: number;
  readonly open: Map<string, OpenTicket>;
  issued: number; // number of its tickets
  published: number; // number of these, in order
  readonly answers: EvalResult['answers'];
  readonly deaths: string[]; // why, for each ticket without an answer
}

/**
 * Measures one policy version on the held-out problems with the actors and the reward service, using
 * tickets pinned to that version. Each problem is answered several times at the sampling temperature and
 * once greedily. The seeds are the same for every version. No ticket asks for more answers than training
 * tickets do, so one bound holds for all groups of a run.
 */
export class Evaluator {
  readonly #options: EvaluatorOptions;
  readonly #ends = new Changes(); // notified when the last open ticket is closed
  #running: Running | undefined;

  constructor(options: EvaluatorOptions) {
    this.#options = options;
  }

  /** Tickets of the evaluation in progress, and those without an answer yet. */
  get tickets(): { readonly issued: number; readonly open: number } {
    return { issued: this.#running?.issued ?? 0, open: this.#running?.open.size ?? 0 };
  }

  /** The outstanding tickets without an answer. */
  get awaited(): Attempt[] {
    const { open = new Map<string, OpenTicket>(), published = 0 } = this.#running ?? {};
    return [...open.values()].map(({ ticket }) => ticket).filter(({ order }) => order < published);
  }

  /**
   * Evaluates a version; only one evaluation can run at a time.
   *
   * @throws {UserError} if all sampled or all greedy tickets died, with the causes; the signal's reason once it
   *   aborts.
   */
  async run(version: number, signal: AbortSignal): Promise<EvalResult> {
    const { config, log, problems, samples, newestVersion } = this.#options;
    const startedAt = performance.now();
    log.info({ version, problems: problems.length }, 'evaluating');
    const running = this.#begin(version);
    try {
      for (const ticket of this.#issue(running)) {
        await this.#options.publish(ticket, signal);
        running.published += 1;
      }
      while (running.open.size > 0) {
        signal.throwIfAborted();
        await this.#ends.next(signal);
      }
    } finally {
      this.#running = undefined;
    }
    const { deaths, answers } = running;
    const lost = deaths.length;
    if (lost > 0) log.warn({ version, lost }, 'evaluation lacks dead tickets');
    const rates = solveRates(problems, answers);
    if (rates === undefined) {
      throw new UserError(
        `the evaluation of version ${version} failed: all of its sampled or all of its greedy tickets died, ` +
          `${lost} of ${running.issued}:\n${listed(deaths)}`,
      );
    }
    return {
      version,
      lag: Math.max(0, newestVersion() - version),
      seconds: (performance.now() - startedAt) / 1_000,
      temperature: config.sampling.temperature,
      samples,
      ...rates,
      lost,
      answers,
    };
  }

  /**
   * Records a scored group; ignores groups of an evaluation that a crash ended.
   *
   * @returns whether it counts.
   * @throws {PermanentError} if it does not answer its ticket. Its message is then given up and
   *   `recordDeath` is called.
   */
  receive({ group, scores }: ScoredGroup): boolean {
    const { ticketId } = group.ticket;
    const running = this.#running;
    const expected = running?.open.get(ticketId);
    if (running === undefined || expected === undefined) return false;
    const altered = alteredFields(group.ticket, expected.ticket);
    if (altered.length > 0) {
      throw new PermanentError(`${ticketId} was issued with other ${altered.join(', ')}`);
    }
    if (this.#options.isQuarantined(group.actor)) {
      throw new PermanentError(`${ticketId} is answered by ${group.actor}, which is quarantined`);
    }
    const others = group.rollouts
      .flatMap(({ versions }) => versions.map(([by]) => by))
      .filter((by) => by !== running.version);
    if (others.length > 0) {
      throw new PermanentError(
        `${ticketId} asks for version ${running.version}, the group is of ${others.join(', ')}`,
      );
    }
    const answers = running.answers[expected.kind];
    answers.total[expected.problem]! += scores.length;
    answers.correct[expected.problem]! += scores.filter(({ isCorrect }) => isCorrect).length;
    this.#close(running, ticketId);
    return true;
  }

  /** Continues the evaluation without a ticket whose message was given up. */
  recordDeath(ticketId: string, why: string): void {
    const running = this.#running;
    if (running?.open.has(ticketId) !== true) return;
    running.deaths.push(why);
    this.#close(running, ticketId);
  }

  #begin(version: number): Running {
    if (this.#running !== undefined) {
      throw new Error(`version ${this.#running.version} is still being evaluated`);
    }
    const none = (): Answers => {
      const zeros = () => this.#options.problems.map(() => 0);
      return { correct: zeros(), total: zeros() };
    };
    const answers = { sampled: none(), greedy: none() };
    this.#running = { version, open: new Map(), issued: 0, published: 0, answers, deaths: [] };
    return this.#running;
  }

  #close({ open }: Running, ticketId: string): void {
    open.delete(ticketId);
    if (open.size === 0) this.#ends.notify();
  }

  /** All tickets of an evaluation, registered as open before the first is published. */
  #issue(running: Running): Ticket[] {
    const { config, problems, samples } = this.#options;
    const { version, open } = running;
    const kinds = [
      ...parts(samples, config.groupSize).map((groupSize) => {
        return { kind: 'sampled', groupSize, temperature: config.sampling.temperature } as const;
      }),
      { kind: 'greedy', groupSize: 1, temperature: 0 } as const,
    ];
    const tickets = kinds.flatMap(({ kind, groupSize, temperature }, k) =>
      problems.map(({ id: problemId }, problem) => {
        const order = k * problems.length + problem;
        const ticketId = `eval-${version}-${order}-${randomPart()}`; // unique for each attempt
        const samplingParams = {
          temperature,
          maxTokens: config.sampling.maxTokens,
          seed: (config.seed + order) % 2 ** 31,
        };
        const asked = { problemId, split: 'eval', groupSize, samplingParams, attempt: 0 } as const;
        const by = { issuedAtVersion: version, pinnedVersion: version };
        const ticket: Ticket = { v: 1, ticketId, order, ...asked, ...by };
        open.set(ticketId, { ticket, problem, kind });
        return ticket;
      }),
    );
    running.issued = tickets.length;
    return tickets;
  }
}

const mostReasons = 3;
const longestReason = 300; // characters

/** Some of the reasons, which may quote what an actor sent. */
function listed(reasons: readonly string[]): string {
  const all = [...new Set(reasons)];
  const more = all.length > mostReasons ? ['  - …'] : [];
  const some = all.slice(0, mostReasons).map((reason) => printable(reason.slice(0, longestReason)));
  return [...some.map((reason) => `  - ${reason}`), ...more].join('\n');
}

/** Passes the scored groups of evaluation tickets to `evaluator` until `signal` aborts. */
export async function receiveAnswers(
  broker: Broker,
  evaluator: { receive: (scored: ScoredGroup) => boolean | Promise<void> },
  options: { readonly signal: AbortSignal; readonly log: Logger },
): Promise<void> {
  const settings = { ...options, stage: 'learner', concurrency: 4 };
  await consume(broker, 'scored.eval', ScoredGroup, settings, async ({ value }) => {
    await evaluator.receive(value);
  });
}

/** `total` split into integers of at most `most`. */
function parts(total: number, most: number): number[] {
  const count = Math.ceil(total / most);
  return Array.from({ length: count }, (_, i) => Math.min(most, total - i * most));
}
