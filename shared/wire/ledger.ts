import { z } from 'zod';

const index = z.int().nonnegative(); // of a problem to train on

/**
 * What difficulty-aware sampling needs to go on exactly: the problems of tickets that are decided, and
 * what the others will be decided by.
 */
export const CurriculumState = z.strictObject({
  decidedTo: z.int().nonnegative(), // tickets of lower orders have their problems
  decided: z.array(z.tuple([z.int().nonnegative(), index])), // [order, problem], without the consumed
  tried: z.array(z.tuple([index, z.number().nonnegative(), z.number().nonnegative()])),
});
export type CurriculumState = z.infer<typeof CurriculumState>;

/** How many tickets came to each end. `issued` is the sum of the others, at every moment. */
export const GroupCounts = z.strictObject({
  issued: z.int().nonnegative(),
  trained: z.int().nonnegative(),
  skippedZeroVariance: z.int().nonnegative(),
  stale: z.int().nonnegative(),
  dead: z.int().nonnegative(),
  outstanding: z.int().nonnegative(),
});
export type GroupCounts = z.infer<typeof GroupCounts>;

/** A state that the backend keeps for the run. */
export const SavedState = z.strictObject({
  step: z.int().nonnegative(),
  path: z.string().startsWith('tinker://'),
  score: z.number().optional(), // of its evaluation: the share of held-out problems solved
});
export type SavedState = z.infer<typeof SavedState>;

/** A crash that raised the version numbers: the weights of version `to` were published again as `from`. */
const Rewind = z
  .strictObject({ from: z.int().positive(), to: z.int().nonnegative() })
  .refine(({ from, to }) => from > to, { message: 'expected from to be above to' });

/** What makes the ids of a run's tickets ones that nobody can guess who may not read the ledger. */
export const TicketKey = z.strictObject({
  v: z.literal(1),
  secret: z.string().regex(/^[0-9a-f]{64}$/),
  keyedFrom: z.int().nonnegative(), // tickets of lower orders were issued before there was a key
});
export type TicketKey = z.infer<typeof TicketKey>;

/** What the saved weights have consumed: a restarted learner starts from exactly here. */
export const Checkpoint = z.strictObject({
  v: z.literal(1),
  step: z.int().nonnegative(),
  version: z.int().nonnegative(),
  statePath: z.string().startsWith('tinker://'), // the backend's weights and optimizer
  states: z.array(SavedState).optional(), // all that are kept, so that a later life can tidy up
  nextOrder: z.int().nonnegative(), // of the next ticket to issue
  consumedBelow: z.int().nonnegative(), // every lower order is trained, skipped, stale or dead
  consumedAbove: z.array(z.int().nonnegative()), // and of the higher ones, these
  counts: GroupCounts, // as of this checkpoint
  // Those that staleness depends on, `from` rising. Ledgers of older learners do not have it, and what
  // was sampled before such a one was restored is counted as if it had never been restored before.
  rewinds: z.array(Rewind).optional(),
  curriculum: CurriculumState.optional(), // of difficulty-aware sampling
  progress: z.number().min(0).max(1), // how far the run is: the learning rate goes on from here
  savedAt: z.number(), // ms since the epoch
  // Counts the run's checkpoints from 1: of several copies the highest is the newest, whatever clocks
  // say. 0 or absent in ledgers of older learners.
  serial: z.int().nonnegative().optional(),
  // A copy, since a new key would make strangers of the tickets that are out if the ledger is damaged.
  ticketKey: TicketKey.optional(),
  // How long actors held a ticket, the median. A resumed run may have to take a ticket back before it trains anything.
  usualHoldSeconds: z.number().nonnegative().optional(),
});
export type Checkpoint = z.infer<typeof Checkpoint>;

/** Which learner may train. Held by compare-and-set, lost when it is not renewed. */
export const LeaderLease = z.strictObject({
  v: z.literal(1),
  holder: z.string().min(1),
  renewedAt: z.number(), // ms since the epoch
});
export type LeaderLease = z.infer<typeof LeaderLease>;
