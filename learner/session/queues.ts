import type { Broker } from '../../shared/broker/broker.js';
import { consume } from '../../shared/broker/consume.js';
import { watchDeadLetters } from '../../shared/broker/dead-letter-watch.js';
import { type Evaluator, receiveAnswers } from '../../shared/run/evaluation/evaluator.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import { countDroppedGroup } from '../../shared/service/telemetry/drops.js';
import { type Split, type Ticket, ticketAttributes } from '../../shared/wire/ticket.js';
import { startSpan } from '../../shared/service/telemetry/tracing.js';
import { tokenCount } from '../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../shared/wire/scored-group.js';
import { orderOf } from '../../shared/base/ticket-name.js';
import { messageIdOf } from '../../shared/wire/ticket-ids.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import { HoldTimes } from '../tickets/hold-times.js';
import { issueTickets, ticketPace } from '../tickets/ticket-issuer.js';
import type { TicketWatch } from '../tickets/ticket-watch.js';
import type { SessionParts, SessionOptions } from './parts.js';
import { keepWatch, openTicketWatch, type WatchedTickets } from './watch-tickets.js';

interface QueueOptions extends Pick<
  SessionOptions,
  'broker' | 'config' | 'leadership' | 'runWatch' | 'log'
> {
  readonly settings: Pick<
    SessionOptions['settings'],
    'ticketDeadlineSeconds' | 'leaseSeconds' | 'ticketsAhead'
  >;
  readonly meter: Pick<SessionOptions['meter'], 'evaluated'>;
}

type QueueParts = Pick<
  SessionParts,
  'receiver' | 'tickets' | 'unacked' | 'holdTimes' | 'admission' | 'changes'
>;

/** The queues between a session and the rest of the run. A failure of one fails the session. */
export class SessionQueues {
  readonly #options: QueueOptions;
  readonly #broker: Broker;
  readonly #parts: QueueParts;
  readonly #session: TaskScope;
  readonly #log: Logger;
  readonly #watches = new Map<Split, TicketWatch>();

  constructor(options: QueueOptions, parts: QueueParts, session: TaskScope) {
    this.#options = options;
    this.#broker = options.broker;
    this.#parts = parts;
    this.#session = session;
    this.#log = options.log;
  }

  async publish(ticket: Ticket, signal: AbortSignal): Promise<void> {
    const span = startSpan('ticket', () => ({
      ticket: { run: this.#broker.run, ticketId: ticket.ticketId },
      attributes: ticketAttributes(ticket),
    }));
    await this.#broker.tickets.publish(ticket, { trace: span?.traceparent, signal });
    this.#watches.get(ticket.split)?.published(ticket);
    span?.end();
  }

  /** Follows the dead letters, of training and of evaluation, until the session ends. */
  watchDeaths(evaluator: Evaluator): void {
    const { receiver, tickets } = this.#parts;
    this.#session.start((signal) =>
      watchDeadLetters(this.#broker.deadLetters.read(signal), (ticket, death) => {
        const order = tickets.orderOf(ticket);
        const { stage, reason } = death;
        if (order === undefined) evaluator.recordDeath(ticket.ticketId, `${stage}: ${reason}`);
        else receiver.recordDeath(order, ticket.attempt, death);
      }),
    );
  }

  /** Handles evaluation results and lost evaluation tickets until the session ends. */
  handleEvaluations(evaluator: Evaluator): void {
    const { ticketDeadlineSeconds: fixedSeconds, leaseSeconds } = this.#options.settings;
    const receive = async (scored: ScoredGroup): Promise<void> => {
      this.#noteAnswer(scored);
      const { group } = scored;
      const counts = evaluator.receive(scored);
      if (counts) this.#options.meter.evaluated(tokenCount(group), group.promptTokens.length);
      // It may answer a successor's ticket: only the leader may acknowledge it.
      else await this.#options.leadership.confirm();
    };
    this.#session.start((signal) =>
      receiveAnswers(this.#broker, { receive }, { signal, log: this.#log }),
    );
    this.#session.start((signal) =>
      this.#watchTickets(
        {
          split: 'eval',
          awaited: () => evaluator.awaited,
          isFinished: ({ ticketId }) => orderOf(ticketId) === undefined, // the queue has those of training too
          unacked: () => 0,
          holdTimes: new HoldTimes({ fixedSeconds, leaseSeconds }),
          onLost: ({ ticketId }) => {
            evaluator.recordDeath(ticketId, 'no queue has it, nor a dead letter');
          },
          onOverdue: ({ ticketId }) => {
            countDroppedGroup('actor', 'overdue');
            evaluator.recordDeath(ticketId, 'it was withdrawn: an actor held it too long');
          },
        },
        signal,
      ),
    );
  }

  /** Issues training tickets and receives their groups, as tasks of `scope`. */
  issueAndReceive(scope: TaskScope): void {
    const { receiver, tickets, unacked, holdTimes } = this.#parts;
    scope.start((signal) =>
      consume(
        this.#broker,
        'scored.train',
        ScoredGroup,
        {
          signal,
          log: this.#log,
          stage: 'learner',
          concurrency: receivedAtOnce,
          settle: 'by-hand',
          ready: (waiting) => receiver.ready(waiting),
        },
        (delivery) => {
          this.#noteAnswer(delivery.value);
          return this.#session.track(receiver.receive(delivery));
        },
      ),
    );
    scope.start((signal) =>
      issueTickets(
        {
          ...this.#parts,
          pace: ticketPace(this.#options),
          publish: (ticket, stop) => this.publish(ticket, stop),
          onReplaced: ({ seq, scored }) => {
            unacked.replace(seq, messageIdOf(scored.group.ticket));
          },
        },
        signal,
      ),
    );
    scope.start((signal) =>
      this.#watchTickets(
        {
          split: 'train',
          awaited: () => receiver.awaited,
          isFinished: (ticket) => receiver.isFinished(ticket, tickets.orderOf(ticket)),
          unacked: () => unacked.size,
          holdTimes,
          onLost: (ticket) => {
            receiver.recordLoss(tickets.orderOf(ticket)!);
          },
          onOverdue: (ticket) => {
            const order = tickets.orderOf(ticket);
            if (order !== undefined) receiver.recordWithdrawal(order, ticket.attempt);
          },
        },
        signal,
      ),
    );
  }

  #noteAnswer({ group: { ticket, actor } }: ScoredGroup): void {
    this.#watches.get(ticket.split)?.answered(ticket, actor);
  }

  async #watchTickets(watched: WatchedTickets, signal: AbortSignal): Promise<void> {
    const watch = openTicketWatch(watched, this.#options, this.#session);
    this.#watches.set(watched.split, watch);
    await keepWatch(watch, this.#broker, signal);
    this.#watches.delete(watched.split);
  }
}

/** Groups that one request brings at most; each is in memory as a message until it has been received. */
const receivedAtOnce = 8;
