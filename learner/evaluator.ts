import { randomBytes } from 'node:crypto';
import { Gauge } from 'prom-client';
import { PermanentError } from '../shared/errors.js';
import type { Problem } from '../shared/countdown/problem.js';
import type { Logger } from '../shared/telemetry/logger.js';
import type { RunConfig } from '../shared/wire/run-config.js';
import type { EvalResult } from '../shared/wire/run-event.js';
import type { ScoredGroup } from '../shared/wire/scored-group.js';
import type { Ticket } from '../shared/wire/ticket.js';
import { versionsOf } from './verdict.js';

const evalScore = new Gauge({
  name: 'rl_eval_score',
  help: 'Share of held-out problems solved exactly, at the last evaluation',
  labelNames: ['metric'],
});

const evalLag = new Gauge({
  name: 'rl_eval_lag_steps',
  help: 'Newest version minus the evaluated one, when the last evaluation ended',
});

export interface EvaluatorOptions {
  readonly config: Pick<RunConfig, 'seed' | 'sampling'>;
  readonly problems: readonly Problem[]; // held out
  readonly samples: number; // answers to each at the training temperature
  readonly publish: (ticket: Ticket, signal: AbortSignal) => Promise<void>;
  readonly newestVersion: () => number;
  readonly log: Logger;
}

/** What one kind of answer has come to so far. */
interface Part {
  readonly answers: boolean[]; // correct or not
}

/** One evaluation under way: its tickets that are out, and what has come back. */
interface Running {
  readonly version: number;
  readonly open: Map<string, { readonly problemId: string; readonly part: Part }>;
  readonly ended: () => void;
  lost: number;
}

/**
 * Measures one policy version on the held-out problems, with the run's own actors and reward service:
 * tickets that name the version exactly. Each problem is answered a few times at the training
 * temperature, and once by the most probable tokens.
 */
export class Evaluator {
  readonly #options: EvaluatorOptions;
  #running: Running | undefined;

  constructor(options: EvaluatorOptions) {
    this.#options = options;
  }

  /** The version that is being measured; its weights must not be retired. */
  get pinnedVersion(): number | undefined {
    return this.#running?.version;
  }

  /** @throws the signal's reason, once it aborts. */
  async run(version: number, signal: AbortSignal): Promise<EvalResult> {
    const { log, problems, newestVersion } = this.#options;
    const [sampled, greedy]: [Part, Part] = [{ answers: [] }, { answers: [] }];
    const ended = new Promise<void>((resolve, reject) => {
      signal.addEventListener(
        'abort',
        () => {
          reject(signal.reason as Error);
        },
        { once: true },
      );
      this.#running = { version, open: new Map(), ended: resolve, lost: 0 };
    });
    ended.catch(() => undefined);
    const running = this.#running!;
    log.info({ version, problems: problems.length }, 'evaluating');

    const tickets = [...this.#tickets(version)];
    for (const { ticket, isGreedy } of tickets) {
      const part = isGreedy ? greedy : sampled;
      running.open.set(ticket.ticketId, { problemId: ticket.problemId, part });
    }
    for (const { ticket } of tickets) await this.#options.publish(ticket, signal);
    await ended;
    this.#running = undefined;

    if (running.lost > 0)
      log.warn({ lost: running.lost }, 'evaluated without the tickets that died');
    const result = {
      version,
      problems: problems.length,
      sampled: share(sampled.answers),
      greedy: share(greedy.answers),
    };
    evalScore.set({ metric: 'sampled' }, result.sampled);
    evalScore.set({ metric: 'greedy' }, result.greedy);
    evalLag.set(newestVersion() - version);
    log.info(result, 'evaluated');
    return result;
  }

  /** Takes in a scored group; one of an evaluation that a crash ended has nothing to tell any more. */
  receive(scored: ScoredGroup): void {
    const { group, scores } = scored;
    const { ticketId, problemId } = group.ticket;
    const running = this.#running;
    const expected = running?.open.get(ticketId);
    if (running === undefined || expected === undefined) return;
    const versions = versionsOf(scored);
    if (expected.problemId !== problemId) {
      throw new PermanentError(
        `${ticketId} is about problem ${expected.problemId}, not ${problemId}`,
      );
    }
    if (versions.length !== 1 || versions[0] !== running.version) {
      throw new PermanentError(
        `${ticketId} asks for version ${running.version}, the group is of ${versions.join(', ')}`,
      );
    }
    expected.part.answers.push(...scores.map(({ isCorrect }) => isCorrect));
    this.#close(running, ticketId);
  }

  /** The ticket's message was given up: the evaluation goes on without it. */
  die(ticketId: string): void {
    const running = this.#running;
    if (running?.open.has(ticketId) !== true) return;
    running.lost += 1;
    this.#close(running, ticketId);
  }

  #close(running: Running, ticketId: string): void {
    running.open.delete(ticketId);
    if (running.open.size === 0) running.ended();
  }

  *#tickets(version: number): Generator<{ ticket: Ticket; isGreedy: boolean }> {
    const { config, problems, samples } = this.#options;
    const name = `eval-${version}-${randomBytes(4).toString('hex')}`; // another one each time
    let order = 0;
    for (const isGreedy of [false, true]) {
      for (const { id: problemId } of problems) {
        const ticket: Ticket = {
          v: 1,
          ticketId: `${name}-${order}`,
          order,
          problemId,
          split: 'eval',
          groupSize: isGreedy ? 1 : samples,
          samplingParams: {
            temperature: isGreedy ? 0 : config.sampling.temperature,
            maxTokens: config.sampling.maxTokens,
            seed: (config.seed + order) % 2 ** 31,
          },
          issuedAtVersion: version,
          pinnedVersion: version,
          attempt: 0,
        };
        order += 1;
        yield { ticket, isGreedy };
      }
    }
  }
}

function share(answers: readonly boolean[]): number {
  if (answers.length === 0) {
    throw new Error('the evaluation came to nothing: every one of its tickets died');
  }
  return answers.filter(Boolean).length / answers.length;
}
