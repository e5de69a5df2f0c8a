import { setTimeout as sleep } from 'node:timers/promises';
import { Gauge } from 'prom-client';
import type { Broker } from '../../shared/broker/broker.js';
import { errorText } from '../../shared/base/errors.js';
import type { Logger } from '../../shared/service/telemetry/logger.js';
import type { Split } from '../../shared/wire/ticket.js';
import { readableId } from '../../shared/base/ticket-name.js';
import { type Attempt } from '../../shared/wire/ticket-ids.js';
import type { TaskScope } from '../../shared/base/task-scope.js';
import {
  type HeldTickets,
  ticketPollMs,
  TicketWatch,
  type TicketWatchOptions,
} from '../tickets/ticket-watch.js';
import type { SessionOptions } from './parts.js';

const heldSeconds = new Gauge({
  name: 'rl_ticket_held_seconds',
  help: 'Longest time for which an actor has held one of its current tickets; 0 while none is held.',
  labelNames: ['split'],
});
const limitSeconds = new Gauge({
  name: 'rl_ticket_deadline_seconds',
  help: 'Time after which a held ticket is withdrawn from its actor.',
  labelNames: ['split'],
});

export interface WatchedTickets extends Pick<
  TicketWatchOptions,
  'awaited' | 'isFinished' | 'onLost' | 'onOverdue' | 'holdTimes'
> {
  readonly split: Split;
  /** How many scored groups of the split have been received and not acknowledged. */
  readonly unacked: () => number;
}

/** The least time between two warnings about held tickets, unless a ticket was withdrawn. */
const warnEveryMs = 10_000;

/** Creates the watch over the tickets of a split, which reports to the log, the run's events and the metrics. */
export function openTicketWatch(
  { split, unacked, holdTimes, ...watched }: WatchedTickets,
  { broker, runWatch, log: parentLog }: Pick<SessionOptions, 'broker' | 'runWatch' | 'log'>,
  scope: TaskScope,
): TicketWatch {
  const log = parentLog.child({ split });
  /** Ignores a failed request, since the next poll repeats it. */
  const orElse =
    <T>(otherwise: T) =>
    (caught: unknown) => {
      log.debug({ reason: errorText(caught) }, 'tickets not polled');
      return otherwise;
    };
  let warnedAt = -Infinity;
  return new TicketWatch({
    awaited: watched.awaited,
    isFinished: watched.isFinished,
    poll: () => broker.tickets.poll(split).catch(orElse(undefined)),
    pass: () => {
      const passage = broker.pass(split, unacked);
      return {
        isOver: () => passage.isOver().catch(orElse(false)),
        get heldLong() {
          return passage.heldLong;
        },
      };
    },
    withdraw: (seq) => broker.tickets.withdraw(seq).catch(orElse(false)),
    isAnyoneThere: () => runWatch.metrics['actors/live'] !== 0,
    holdTimes,
    now: () => performance.now() / 1_000,
    onLost: (ticket) => {
      log.warn(nameOf(ticket), 'ticket lost: no queue has it');
      watched.onLost(ticket);
    },
    onOverdue: (ticket, seconds) => {
      log.warn({ ...nameOf(ticket), seconds }, 'ticket withdrawn: an actor held it too long');
      watched.onOverdue(ticket, seconds);
    },
    onHeld: (found) => {
      if (found.withdrawn === 0 && performance.now() - warnedAt < warnEveryMs) return;
      warnedAt = performance.now();
      log.warn(found, 'actors hold tickets for longer than usual');
      void scope.track(emitHeld(broker, split, found, log));
    },
    onPoll: (longest) => {
      heldSeconds.set({ split }, longest);
      limitSeconds.set({ split }, holdTimes.limit);
    },
  });
}

/** Polls the tickets regularly until `signal` aborts. */
export async function keepWatch(
  watch: TicketWatch,
  broker: Pick<Broker, 'isConnected'>,
  signal: AbortSignal,
): Promise<void> {
  for (;;) {
    await sleep(ticketPollMs, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return;
    if (broker.isConnected) await watch.poll();
  }
}

/** Emits the event of held tickets. Not awaited, since a poll must not wait for room in the event stream. */
async function emitHeld(
  broker: Pick<Broker, 'events'>,
  split: Split,
  found: HeldTickets,
  log: Logger,
): Promise<void> {
  try {
    await broker.events.emit({ v: 1, at: Date.now(), kind: 'held', split, ...found });
  } catch (caught) {
    log.debug({ reason: errorText(caught) }, 'held tickets not reported');
  }
}

function nameOf({ ticketId, attempt }: Attempt) {
  return { ticketId: readableId(ticketId), attempt };
}
