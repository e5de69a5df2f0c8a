import { z } from 'zod';

/** The problems that a ticket is drawn from: training or held-out ones. */
export const Split = z.enum(['train', 'eval']);
export type Split = z.infer<typeof Split>;

export const SamplingParams = z.strictObject({
  temperature: z.number().min(0), // 0 is greedy: always the most probable token
  maxTokens: z.int().positive(),
  seed: z.int().nonnegative(), // of this group; the same seed and policy give the same rollouts
});
export type SamplingParams = z.infer<typeof SamplingParams>;

/** Maximum rollouts of one group, which bounds what readers allocate. */
export const maxGroupSize = 4_096;

/** The permission to sample one group. The number of outstanding ones bounds the staleness (`shared/rl/capacity.ts`). */
export const Ticket = z.strictObject({
  v: z.literal(1), // wire version: bump it when an older reader would misread the message
  ticketId: z.string().regex(/^[!-~]{1,128}$/, 'expected 1 to 128 printable ASCII characters'), // unique in the run and unguessable, see TicketIds; part of headers
  order: z.int().nonnegative(), // position in the run's sequence of tickets; lower orders are sampled first
  problemId: z.string().min(1).max(256),
  split: Split,
  groupSize: z.int().positive().max(maxGroupSize),
  samplingParams: SamplingParams,
  issuedAtVersion: z.int().nonnegative(), // the actor samples with this policy version or a newer one
  pinnedVersion: z.int().nonnegative().optional(), // sample with exactly this version
  attempt: z.int().nonnegative(),
});
export type Ticket = z.infer<typeof Ticket>;

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

/** The attributes of a ticket on every tracing span. */
export function ticketAttributes(ticket: Ticket): Record<string, string | number> {
  return {
    'offbeat.split': ticket.split,
    'offbeat.attempt': ticket.attempt,
    'offbeat.issued_at_version': ticket.issuedAtVersion,
  };
}
