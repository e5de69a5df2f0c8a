import type { Ticket } from './ticket.js';

/** What every span tells of its ticket. */
export function ticketAttributes(ticket: Ticket): Record<string, string | number> {
  return {
    'offbeat.split': ticket.split,
    'offbeat.attempt': ticket.attempt,
    'offbeat.issued_at_version': ticket.issuedAtVersion,
  };
}
