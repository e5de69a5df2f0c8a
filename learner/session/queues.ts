import { setTimeout as sleep } from 'node:timers/promises';
import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { watchDeadLetters } from '../../shared/broker/dead-letter-watch.js';
import { errorText } from '../../shared/errors.js';
import type { Evaluator } from '../../shared/evaluation/evaluator.js';
import type { Logger } from '../../shared/telemetry/logger.js';
import { ticketAttributes } from '../../shared/telemetry/ticket-attributes.js';
import { startSpan } from '../../shared/telemetry/tracing.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { Ticket } from '../../shared/wire/ticket.js';
import { type Attempt, messageIdOf, readableId } from '../../shared/wire/ticket-ids.js';
import type { Failure } from '../failure.js';
import { LostTickets, type LostTicketsOptions, lostLookMs } from '../groups/lost-tickets.js';
import { issueTickets } from '../groups/ticket-issuer.js';
import type { SessionParts } from './parts.js';

/** The queues between a session and the rest of the run. What goes wrong with one fails the session. */
export class SessionQueues {
  readonly #broker: Broker;
  readonly #parts: SessionParts;
  readonly #failure: Failure;
  readonly #log: Logger;

  constructor(broker: Broker, parts: SessionParts, failure: Failure, log: Logger) {
    this.#broker = broker;
    this.#parts = parts;
    this.#failure = failure;
    this.#log = log;
  }

  async publish(split: 'train' | 'eval', ticket: Ticket, signal: AbortSignal): Promise<void> {
    const msgId = messageIdOf(ticket);
    const subject = this.#broker.names.subjects.tickets(split);
    const span = startSpan('ticket', () => ({
      ticket: { run: this.#broker.run, ticketId: ticket.ticketId },
      attributes: ticketAttributes(ticket),
    }));
    const options = { msgId, trace: span?.traceparent, signal };
    await this.#broker.publish(subject, Ticket, ticket, options);
    span?.end();
  }

  /** What comes back of evaluations, what nobody could do and what is lost, until `signal` aborts. */
  async listen(evaluator: Evaluator, signal: AbortSignal): Promise<void> {
    const { intake, tickets } = this.#parts;
    await this.#together([
      consume(
        this.#broker,
        'scored.eval',
        ScoredGroup,
        { signal, log: this.#log, stage: 'learner', concurrency: 4 },
        ({ value }) => {
          evaluator.receive(value);
          return Promise.resolve();
        },
      ),
      watchDeadLetters(this.#broker.deadLetters.read(signal), (ticket, death) => {
        const order = tickets.orderOf(ticket);
        if (order === undefined) evaluator.die(ticket.ticketId);
        else intake.die(order, ticket.attempt, death);
      }),
      this.#lookForLost(
        'eval',
        {
          awaited: () => evaluator.awaited,
          held: () => 0,
          onLost: ({ ticketId }) => {
            evaluator.die(ticketId);
          },
        },
        signal,
      ),
    ]);
  }

  /** Issues tickets to train on and takes their groups in, until `signal` aborts. */
  async exchange(signal: AbortSignal): Promise<void> {
    const { intake, tickets, unsettled } = this.#parts;
    const byHand = { concurrency: 1, settle: 'by-hand' } as const;
    await this.#together([
      consume(
        this.#broker,
        'scored.train',
        ScoredGroup,
        { signal, log: this.#log, stage: 'learner', ...byHand },
        (delivery) => this.#failure.watch(intake.receive(delivery)),
      ),
      issueTickets(
        {
          ...this.#parts,
          publish: (ticket, stop) => this.publish('train', ticket, stop),
          onReplaced: ({ seq }) => {
            unsettled.replace(seq);
          },
        },
        signal,
      ),
      this.#lookForLost(
        'train',
        {
          awaited: () => intake.awaited,
          held: () => unsettled.size,
          onLost: (ticket) => {
            intake.lose(tickets.orderOf(ticket)!);
          },
        },
        signal,
      ),
    ]);
  }

  async #lookForLost(
    split: 'train' | 'eval',
    { held, ...options }: Omit<LostTicketsOptions, 'pass'> & { readonly held: () => number },
    signal: AbortSignal,
  ): Promise<void> {
    const pass = () => {
      const passage = this.#broker.pass(split, held);
      const isOver = () =>
        passage.isOver().catch((caught: unknown) => {
          this.#log.debug({ reason: errorText(caught) }, 'could not look for lost tickets');
          return false;
        });
      return { isOver };
    };
    const onLost = (ticket: Attempt) => {
      const { ticketId, attempt } = ticket;
      this.#log.warn(
        { ticketId: readableId(ticketId), attempt },
        'a ticket is lost: no queue has it',
      );
      options.onLost(ticket);
    };
    const lost = new LostTickets({ ...options, pass, onLost });
    for (;;) {
      await sleep(lostLookMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      if (this.#broker.isConnected) await lost.look();
    }
  }

  /** Until all have ended; none of them rejects unheard. */
  async #together(tasks: readonly Promise<void>[]): Promise<void> {
    await Promise.allSettled(tasks.map((task) => this.#failure.watch(task)));
  }
}
