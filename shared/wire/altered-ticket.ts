import type { Ticket } from './ticket.js';

/** The fields in which a ticket differs from the one that was issued, such as `samplingParams.seed`. */
export function alteredFields(ticket: Ticket, issued: Ticket): string[] {
  const { samplingParams, ...rest } = ticket;
  const { samplingParams: issuedParams, ...issuedRest } = issued;
  return [
    ...unequalFields(rest, issuedRest),
    ...unequalFields(samplingParams, issuedParams).map((field) => `samplingParams.${field}`),
  ];
}

function unequalFields<Fields extends object>(a: Fields, b: Fields): string[] {
  const keys = new Set([...Object.keys(a), ...Object.keys(b)]) as Set<keyof Fields & string>;
  return [...keys].filter((key) => a[key] !== b[key]);
}
