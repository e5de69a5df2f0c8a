import { z } from 'zod';

const index = z.int().nonnegative(); // of a problem to train on

/**
 * The state of difficulty-aware sampling, so that a restarted learner continues exactly: the problems
 * already chosen for tickets, and the statistics that choose the others.
 */
export const CurriculumState = z.strictObject({
  decidedTo: z.int().nonnegative(), // tickets of lower orders have a problem
  decided: z.array(z.tuple([z.int().nonnegative(), index])), // [order, problem], without the consumed
  tried: z.array(z.tuple([index, z.number().nonnegative(), z.number().nonnegative()])),
  // [name, groups, groups with signal]; absent if difficulties come as the data has them
  difficulties: z
    .array(z.tuple([z.string(), z.number().nonnegative(), z.number().nonnegative()]))
    .optional(),
});
export type CurriculumState = z.infer<typeof CurriculumState>;

/** Number of tickets by outcome. `issued` is always the sum of the others. */
export const GroupCounts = z.strictObject({
  issued: z.int().nonnegative(),
  trained: z.int().nonnegative(),
  skippedZeroVariance: z.int().nonnegative(),
  stale: z.int().nonnegative(),
  dead: z.int().nonnegative(),
  outstanding: z.int().nonnegative(),
});
export type GroupCounts = z.infer<typeof GroupCounts>;

/** A saved training state that the backend keeps for the run. */
export const SavedState = z.strictObject({
  step: z.int().nonnegative(),
  path: z.string().startsWith('tinker://'),
  score: z.number().optional(), // from its evaluation: share of held-out problems solved
});
export type SavedState = z.infer<typeof SavedState>;

/**
 * The state with the best evaluation score, the newer of equals; undefined if none has been evaluated.
 *
 * @param states in the order in which they were saved, with scores over the same problems.
 */
export function bestState(states: readonly SavedState[]): SavedState | undefined {
  return states.reduce<SavedState | undefined>(
    (best, state) =>
      state.score !== undefined && state.score >= (best?.score ?? 0) ? state : best,
    undefined,
  );
}

/**
 * The states with only the scores that can be compared: those over as many problems as the newest evaluation of any of
 * them. `--eval-problems` may change at a resume, and a score over few problems may be the highest by chance.
 *
 * @param problems held-out problems of the evaluation of each step, in order of evaluation. Scores of other steps stay.
 */
export function withComparableScores(
  states: readonly SavedState[],
  problems: ReadonlyMap<number, number>,
): SavedState[] {
  const scored = new Set(states.flatMap(({ step, score }) => (score === undefined ? [] : step)));
  const newest = [...problems].findLast(([step]) => scored.has(step))?.[1];
  return states.map((state) => {
    if ((problems.get(state.step) ?? newest) === newest) return state;
    const { score: _overOthers, ...rest } = state;
    return rest;
  });
}

/** A crash that raised the version numbers: the weights of version `to` were published again as `from`. */
const Rewind = z
  .strictObject({ from: z.int().positive(), to: z.int().nonnegative() })
  .refine(({ from, to }) => from > to, { message: 'expected from to be above to' });

/** The secret that makes a run's ticket ids unguessable without access to the ledger. */
export const TicketKey = z.strictObject({
  v: z.literal(1),
  secret: z.string().regex(/^[0-9a-f]{64}$/),
  keyedFrom: z.int().nonnegative(), // tickets of lower orders were issued before there was a key
});
export type TicketKey = z.infer<typeof TicketKey>;

const count = z.int().nonnegative();
const counts = z.record(z.string(), count);
const seconds = z.number().nonnegative();

/** What became of the tokens of answers that the learner has received, and of examples. */
const TokenTotals = z.strictObject({
  trained: count,
  masked: count, // of the trained: the loss or a mask left them out
  wasted: counts, // by reason
  prompts: z.strictObject({ sampled: count, trained: count }), // of prompts: once a group, once a trained rollout
  examples: count.optional(), // of a run on examples: of those trained, prompts included
});
export type TokenTotals = Readonly<z.infer<typeof TokenTotals>>;

/** What a run has used and no crash gives back. */
const MeterTotals = z.strictObject({
  seconds: z.strictObject({ sampler: seconds, trainer: seconds, reward: seconds }), // machines held
  evaluated: count, // tokens sampled for evaluations
  evaluatedPrompts: count, // tokens of their prompts, once a group
  abandoned: counts, // tokens that actors drew and gave up, by reason
  undone: count, // tokens trained in steps that a crash undid
});
export type MeterTotals = Readonly<z.infer<typeof MeterTotals>>;

/** What a run has used since it began. */
const Usage = z.strictObject({
  tokens: TokenTotals,
  // Sequence numbers of the messages that this checkpoint acknowledges: a crash before that delivers them again.
  counted: z.array(count),
  meter: MeterTotals,
});
export type Usage = Readonly<z.infer<typeof Usage>>;

/** The saved weights and the tickets that they have consumed; a restarted learner resumes from here. */
export const Checkpoint = z.strictObject({
  v: z.literal(1),
  step: z.int().nonnegative(),
  version: z.int().nonnegative(),
  statePath: z.string().startsWith('tinker://'), // the backend's weights and optimizer
  states: z.array(SavedState).optional(), // all that are kept, so that a later session can delete them
  nextOrder: z.int().nonnegative(), // of the next ticket to issue
  consumedBelow: z.int().nonnegative(), // all lower orders are trained, skipped, stale or dead
  consumedAbove: z.array(z.int().nonnegative()), // consumed orders above consumedBelow
  counts: GroupCounts, // as of this checkpoint
  // The rewinds that staleness depends on, `from` rising. Ledgers of older learners lack this field; for
  // them, staleness ignores earlier rewinds.
  rewinds: z.array(Rewind).optional(),
  curriculum: CurriculumState.optional(), // of difficulty-aware sampling
  progress: z.number().min(0).max(1), // of the run; the learning rate continues from here
  savedAt: z.number(), // ms since the epoch
  // Counts the run's checkpoints from 1; the copy with the highest serial is the newest, independent of
  // clocks. 0 or absent in ledgers of older learners.
  serial: z.int().nonnegative().optional(),
  // A copy: if the ledger is damaged, a new key would invalidate the outstanding tickets.
  ticketKey: TicketKey.optional(),
  // Median time that actors held a ticket; a resumed run may have to withdraw tickets before its first step.
  usualHoldSeconds: z.number().nonnegative().optional(),
  usage: Usage.optional(), // absent in ledgers of older learners
});
export type Checkpoint = z.infer<typeof Checkpoint>;

/** The lease of the learner that may train; held by compare-and-set, lost if not renewed. */
export const LeaderLease = z.strictObject({
  v: z.literal(1),
  holder: z.string().min(1),
  renewedAt: z.number(), // ms since the epoch
  expiresMs: z.number().positive().optional(), // after its renewal; absent in leases of older learners
});
export type LeaderLease = z.infer<typeof LeaderLease>;

/** A lease that does not say when it expires does so after this time, in ms. */
export const usualExpiryMs = 15_000;

/** When a lease expires, in ms after its renewal. */
export function expiryOf({ expiresMs = usualExpiryMs }: LeaderLease): number {
  return expiresMs;
}
