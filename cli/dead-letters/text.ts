import { ticketOf } from '../../shared/broker/dead-letter-watch.js';
import type { DeadLetter } from '../../shared/broker/dead-letters.js';
import type { Checkpoint } from '../../shared/wire/ledger.js';
import { orderOf, readableId } from '../../shared/base/ticket-name.js';
import type { TicketIds } from '../../shared/wire/ticket-ids.js';
import { unpack } from '../../shared/wire/unpack.js';
import { errorText } from '../../shared/base/errors.js';
import { printable } from '../../shared/base/printable.js';
import { alignedLines } from '../columns.js';

/**
 * The state of the ticket that a dead letter ended, by the last checkpoint.
 *
 * - `open`: the next learner waits for it, and only this letter says that it will not come.
 * - `ended`: it was trained, skipped, replaced or counted as dead; no learner waits for it.
 * - `none`: the letter has no training ticket, or one that no learner can have issued.
 */
type TicketStatus = 'open' | 'ended' | 'none';

/** The facts from the ledger and the stream of tickets. */
export interface TicketFacts extends Pick<Checkpoint, 'consumedBelow' | 'consumedAbove'> {
  /** Every ticket that a learner can have issued is below this order, with an attempt of 0 or 1. */
  readonly issuedBelow: number;
  /** Undefined in a run whose tickets have no key: then the id in a letter is trusted. */
  readonly ids?: Pick<TicketIds, 'orderOf'> | undefined;
}

function statusOf(
  letter: Pick<DeadLetter, 'data' | 'msgId'>,
  { consumedBelow, consumedAbove, issuedBelow, ids }: TicketFacts,
): TicketStatus {
  const ticket = ticketOf(letter);
  const order = ticket && (ids === undefined ? orderOf(ticket.ticketId) : ids.orderOf(ticket));
  if (order === undefined || order >= issuedBelow || ticket!.attempt > 1) return 'none';
  const hasEnded = order < consumedBelow || consumedAbove.includes(order);
  return hasEnded ? 'ended' : 'open';
}

/** A dead letter and the state of its ticket, as `list --json` prints it. */
export interface Entry {
  readonly number: number;
  readonly at: string; // ISO 8601
  readonly stage: string;
  readonly reason: string;
  readonly subject: string;
  readonly ticketId: string | null;
  readonly attempt: number | null;
  readonly ticket: TicketStatus;
  readonly bytes: number;
  readonly unreadable: string | null; // which part of the letter, and why
}

function entryOf(letter: DeadLetter, status: TicketStatus): Entry {
  const inside = ticketOf(letter);
  return {
    number: letter.seq,
    at: new Date(letter.at).toISOString(),
    stage: letter.stage,
    reason: letter.reason,
    subject: letter.subject,
    ticketId: inside?.ticketId ?? null,
    attempt: inside?.attempt ?? null,
    ticket: status,
    bytes: letter.data.byteLength,
    unreadable: letter.unreadable ?? null,
  };
}

/**
 * The entries of letters, whose messages may be large and as many as the stream holds: none is kept once its entry is
 * made.
 */
export async function entriesOf(
  letters: AsyncIterable<DeadLetter>,
  facts: TicketFacts,
): Promise<Entry[]> {
  const entries: Entry[] = [];
  for await (const letter of letters) entries.push(entryOf(letter, statusOf(letter, facts)));
  return entries;
}

/** One line for each letter, escaped. */
export function listText(entries: readonly Entry[]): string {
  if (entries.length === 0) return 'no dead letters';
  const rows = entries.map(({ number, at, stage, ticketId, ticket, reason, unreadable }) =>
    [
      String(number),
      at,
      stage,
      ticketId === null ? '-' : `${readableId(ticketId)} (${ticket})`,
      unreadable === null ? reason : `${reason} (unreadable: ${unreadable})`,
    ].map(printable),
  );
  return alignedLines(rows).join('\n');
}

/** One letter with its message: decoded if it can be read, else its bytes. */
export function showing(letter: DeadLetter, facts: TicketFacts): Record<string, unknown> {
  let message: unknown;
  try {
    message = plain(unpack(letter.data));
  } catch (caught) {
    message = {
      unreadable: errorText(caught),
      base64: Buffer.from(letter.data).toString('base64'),
    };
  }
  return { ...entryOf(letter, statusOf(letter, facts)), msgId: letter.msgId ?? null, message };
}

/** Byte arrays as base64, since JSON has no type for them. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return { base64: Buffer.from(value).toString('base64') };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, plain(part)]));
}
