import { setTimeout as sleep } from 'node:timers/promises';
import { Gauge } from 'prom-client';
import { errorText } from '../../shared/base/errors.js';
import type { Broker } from '../../shared/broker/broker.js';
import { type TicketDemand, ticketsWanted, usualTicketsAhead } from '../../shared/rl/capacity.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Ticket } from '../../shared/wire/ticket.js';
import type { Admission } from '../groups/admission.js';
import type { Changes } from '../../shared/base/changes.js';
import type { GroupReceiver } from '../groups/group-receiver.js';
import type { TicketSource } from './ticket-source.js';

const ticketsOutstanding = new Gauge({
  name: 'rl_tickets_outstanding',
  help: 'Tickets issued and not yet trained or dropped.',
});
const ticketDemand = new Gauge({
  name: 'rl_ticket_demand',
  help: 'Groups that actors could be sampling: unanswered tickets, and those that could be issued besides.',
});

interface IssuerOptions<Group> {
  readonly admission: Admission<Group>;
  readonly tickets: TicketSource;
  readonly receiver: Pick<GroupReceiver, 'claim' | 'isAnswered'>;
  readonly changes: Changes;
  readonly pace: Pace;
  /** Resolves once the stream holds the ticket; rejects when `signal` aborts first. */
  readonly publish: (ticket: Ticket, signal: AbortSignal) => Promise<void>;
  /** Called with a stale group once its ticket's second attempt is published, so that a crash loses neither. */
  readonly onReplaced: (group: Group) => void;
}

/**
 * Issues tickets one after another, in order, whenever the law and the limiter leave room and the pace wants
 * one. The second attempt of a stale ticket goes first, since it replaces the first attempt. Resolves when `signal` aborts.
 *
 * A ticket enters the table only after the stream has stored it, so no checkpoint can name a ticket
 * that was never sent. A ticket that was sent but not entered is sent again after a crash under the
 * same id, and only one group of it is admitted.
 */
export async function issueTickets<Group>(
  options: IssuerOptions<Group>,
  signal: AbortSignal,
): Promise<void> {
  const { admission, tickets, receiver, changes, pace, publish, onReplaced } = options;
  while (!signal.aborted) {
    ticketsOutstanding.set(admission.table.outstanding);
    ticketDemand.set(admission.samplable);
    // This also delays a reissue, by at most one write of the ledger.
    if (!admission.hasOffer || !tickets.isProblemFinal(admission.table.nextOrder)) {
      pace.reset();
      await changes.next(signal);
      continue;
    }
    // Offered only now, since the window reserves a place for an offer.
    if (!(await pace.isWanted(signal))) continue;
    const offer = admission.offer();
    if (offer === undefined) continue;
    const { order, attempt, issuedAtVersion } = offer;
    // The answer may be here already: to a ticket of a crashed learner, or a late one to a withdrawn first attempt.
    if (!receiver.isAnswered(order, attempt)) {
      const ticket = tickets.ticketAt(order, attempt, issuedAtVersion);
      if (!(await publishedUnlessAborted(publish(ticket, signal), signal))) return;
    }
    const replaced = admission.issue();
    if (replaced !== undefined) onReplaced(replaced);
    receiver.claim(order, attempt);
  }
}

/** @returns false if `signal` aborted first; the stream may or may not have the ticket. */
async function publishedUnlessAborted(
  publishing: Promise<void>,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    await publishing;
    return true;
  } catch (caught) {
    if (signal.aborted) return false;
    throw caught;
  }
}

/** Decides when the next ticket that the capacity law allows is issued. */
export interface Pace {
  /** Resolves to true if a ticket should be issued now; else to false, after a pause or once `signal` aborts. */
  isWanted(signal: AbortSignal): Promise<boolean>;
  /** Forgets what actors wanted, because no ticket could be issued for a while. */
  reset(): void;
}

/**
 * Whether tickets are issued just in time instead of as early as the capacity law allows. In synchronous training this
 * would gain nothing: a ticket's version does not depend on the moment of its issue. With a sample lag all tickets of
 * a version must be issued while that version is the one to sample with.
 */
export function isJustInTime(config: Pick<RunConfig, 'maxStepsOffPolicy' | 'sampleLag'>): boolean {
  return config.maxStepsOffPolicy > 0 && config.sampleLag === 0;
}

/** Issues tickets as early as the capacity law allows. */
export const atOnce: Pace = {
  isWanted: () => Promise.resolve(true),
  reset: () => undefined,
};

interface JustInTimeOptions {
  /** Tickets that may wait for an actor. */
  readonly ahead: number;
  /** Reads the queue; undefined if it cannot be read, and then the law and the limiter alone decide. */
  readonly read: () => Promise<TicketDemand | undefined>;
  /** Resolves after the time between two reads that find nothing wanted, or once `signal` aborts. */
  readonly pause: (signal: AbortSignal) => Promise<unknown>;
}

/**
 * Issues tickets just in time: when an actor waits for one, or fewer than `ahead` wait for an actor. It asks the server
 * of the queue, so it needs no knowledge of the actors: any number may come and go, each with its own concurrency.
 */
export class JustInTime implements Pace {
  readonly #options: JustInTimeOptions;
  #wanted = 0; // tickets, of the last read

  constructor(options: JustInTimeOptions) {
    this.#options = options;
  }

  async isWanted(signal: AbortSignal): Promise<boolean> {
    const { ahead, read, pause } = this.#options;
    if (this.#wanted === 0) {
      const demand = await read();
      this.#wanted = demand === undefined ? 1 : ticketsWanted(demand, ahead);
    }
    if (this.#wanted > 0) {
      this.#wanted -= 1;
      return true;
    }
    await pause(signal);
    return false;
  }

  reset(): void {
    this.#wanted = 0;
  }
}

/** What the pace of training tickets follows from. */
interface PaceOptions {
  readonly broker: Pick<Broker, 'tickets'>;
  readonly settings: { readonly ticketsAhead?: number | undefined };
  readonly config: Pick<RunConfig, 'maxStepsOffPolicy' | 'sampleLag' | 'groupsPerBatch'>;
  readonly log: Logger;
}

const demandEveryMs = 50; // less than the time in which actors take the tickets that wait for them

/** The pace of training tickets: just in time, unless their versions would then not be those that the run asks for. */
export function ticketPace({ broker, settings, config, log }: PaceOptions): Pace {
  if (!isJustInTime(config)) return atOnce;
  return new JustInTime({
    ahead: settings.ticketsAhead ?? usualTicketsAhead(config.groupsPerBatch),
    read: () =>
      broker.tickets.demand().catch((caught: unknown) => {
        log.debug({ reason: errorText(caught) }, 'demand for tickets not read');
        return undefined;
      }),
    pause: (stop) => sleep(demandEveryMs, undefined, { signal: stop }).catch(() => undefined),
  });
}
