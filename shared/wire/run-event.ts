import { z } from 'zod';
import { EvalResult } from './eval-result.js';
import { Checkpoint } from './ledger.js';
import { Split } from './ticket.js';

const eventBase = { v: z.literal(1), at: z.number() }; // ms since the epoch

/** An event in the run's history, from which dashboards, reports and metrics.jsonl are built. */
export const RunEvent = z.discriminatedUnion('kind', [
  z.strictObject({
    ...eventBase,
    kind: z.literal('step'),
    step: z.int().positive(),
    version: z.int().nonnegative(),
    metrics: z.record(z.string(), z.number()),
  }),
  z.strictObject({ ...eventBase, kind: z.literal('eval'), result: EvalResult }),
  z.strictObject({
    ...eventBase,
    kind: z.literal('quarantine'),
    actor: z.string().min(1).max(128), // whose groups are refused from now on
    why: z
      .enum([
        ...['gap', 'likelihood', 'fleet', 'impossible', 'version'],
        ...['replay', 'selection', 'solve_rate'],
      ] as const)
      .optional(), // absent: gap
    // nats per token; likelihood, selection and solve_rate: nats of evidence; fleet: multiple of others; impossible and replay: groups
    gap: z.number(),
    bound: z.number(), // that the gap exceeded
    groups: z.int().positive(), // groups audited
    version: z.int().nonnegative(),
  }),
  z.strictObject({
    ...eventBase,
    kind: z.literal('refusal'), // an actor or one of its servers does not reproduce a version's canary
    actor: z.string().min(1).max(128),
    engine: z.string().max(512).optional(), // the server, which is out of use; absent: the actor, which does not sample
    version: z.int().nonnegative(),
    difference: z.number().nonnegative(), // the largest, in nats
    band: z.number().positive(), // of the largest
    mean: z.number().nonnegative(), // difference over all tokens but the largest quarter, in nats
    meanBand: z.number().positive(), // of the mean
    place: z.int().nonnegative(), // index of the token in the canary
    closerTo: z.int().nonnegative().optional(), // the earlier version that it is closer to
  }),
  z.strictObject({
    ...eventBase,
    kind: z.literal('suspicion'), // an actor may select the answers that it sends
    actor: z.string().min(1).max(128),
    why: z.enum(['selection', 'solve_rate']), // by how probable its answers are, or by how many it solves
    nats: z.number(), // of evidence
    bound: z.number(), // that they exceeded
    groups: z.int().positive(),
    version: z.int().nonnegative(),
  }),
  z.strictObject({
    ...eventBase,
    kind: z.literal('held'), // actors have held tickets for longer than usual
    split: Split,
    tickets: z.int().positive(),
    withdrawn: z.int().nonnegative(), // tickets withdrawn because they were held beyond the limit
    longestSeconds: z.number().nonnegative(),
    limitSeconds: z.number().positive(),
  }),
  z.strictObject({
    ...eventBase,
    kind: z.literal('share'),
    actor: z.string().min(1).max(400), // that has used up its quota there
    stream: z.enum(['rollouts', 'uploads', 'dead']),
    messages: z.int().positive(),
  }),
  z.strictObject({ ...eventBase, kind: z.literal('version'), version: z.int().nonnegative() }),
  // A learner became the leader: the server refuses messages of earlier leaders after this event.
  z.strictObject({ ...eventBase, kind: z.literal('leader'), holder: z.string().min(1) }),
  // A copy of the checkpoint, in case the ledger is damaged.
  z.strictObject({ ...eventBase, kind: z.literal('checkpoint'), checkpoint: Checkpoint }),
  z.strictObject({
    ...eventBase,
    kind: z.literal('end'),
    summary: z.record(z.string(), z.unknown()),
  }),
]);
export type RunEvent = z.infer<typeof RunEvent>;

/** An event of one kind. */
export type EventOf<Kind extends RunEvent['kind']> = Extract<RunEvent, { kind: Kind }>;
