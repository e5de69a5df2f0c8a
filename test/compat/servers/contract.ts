import { readdirSync, readFileSync } from 'node:fs';
import { z } from 'zod';
import { LossName } from '../../../shared/rl/losses.js';
import { compatFolder } from '../suite.js';

const words = z.string().min(1);
/** A refusal on arrival, in the form that `errors` says. */
const Refusal = z.strictObject({ status: z.int().min(400).max(599), words });
export type Refusal = z.output<typeof Refusal>;

/** What a server does with a loss: computes it, with its own settings where `settings` says; or refuses it. */
const LossRule = z.union([
  z.strictObject({
    allows: z.array(z.string()), // settings; another one is refused by `refusedSettings`
    ignores: z.array(z.string()).default([]), // settings that change nothing
    settings: z.record(z.string(), z.number()).default({}), // that it computes with, whatever the request says
  }),
  Refusal,
  z.strictObject({ fails: words }), // accepted, and the future fails
]);

const Pass = z.strictObject({
  bodies: z.array(z.enum(['protobuf', 'json'])).min(1),
  losses: z.partialRecord(LossName, LossRule),
  refusedSettings: Refusal.optional(),
  unreadInputs: words.optional(), // an input that the loss does not read lets the future fail
  reports: z.array(z.enum(['forward', 'forward_backward'])), // passes that give the value of their loss
});

/** How one call differs from the local backend's. A call without rules is answered as by the local backend. */
const Call = z.strictObject({
  from: z.string(), // the source, a key of `files`
  answer: z.record(z.string(), z.unknown()).optional(), // always the same
  modelFields: z.array(z.string()).optional(), // of a supported model
  seeded: Refusal.optional(), // an adapter with a seed
  ranks: words.optional(), // an adapter of another rank than the first fails
  pass: Pass.optional(),
  ignoredSettings: z.array(z.string()).optional(), // of an optimizer step
  keepsFirst: z.boolean().optional(), // settings of a run's first optimizer step, except its learning rate
  metrics: z.record(z.string(), z.string()).optional(), // of an optimizer step: ours to theirs; others are left out
  again: z.union([Refusal, z.strictObject({ fails: words })]).optional(), // a name that was saved before
  path: z.string().optional(), // of sampler weights; {model} and {name}
  onlyFirst: Refusal.optional(), // it must be the first operation of a run
  samplesNewest: z.boolean().optional(), // whatever the session was opened with
  promptLogprobs: z.boolean().optional(),
  maxSamples: z.strictObject({ most: z.int(), ...Refusal.shape }).optional(),
  cursor: z.boolean().optional(), // of a list of checkpoints
  pending: z.strictObject({ status: z.int(), body: z.record(z.string(), z.unknown()) }).optional(),
  failed: z
    .strictObject({ status: z.int(), field: z.string(), more: z.record(z.string(), z.string()) })
    .optional(),
  unknown: z.strictObject({ status: z.int(), body: z.record(z.string(), z.string()) }).optional(),
});
export type Call = z.output<typeof Call>;

/** A server of the Tinker API as its published sources describe it, and how our client fares with it. */
export const Contract = z.strictObject({
  server: z.string(),
  repository: z.string(),
  read: z.iso.date(), // when its sources were read
  notRun: words, // why the server itself is not tested here
  files: z.record(z.string(), z.strictObject({ path: z.string(), commit: z.string().length(40) })),
  errors: z.strictObject({ from: z.string(), field: z.enum(['detail', 'error']) }),
  sequenceIds: z.strictObject({ from: z.string(), least: z.int(), refusal: words.optional() }),
  calls: z.record(z.string().regex(/^(GET|POST|PUT|DELETE) /), Call),
  /** What our client cannot see or does not depend on, so that the rules above do not play it. */
  facts: z.array(z.strictObject({ from: z.string(), text: words })),
  /** What the suite `servers` must find. */
  found: z.strictObject({
    losses: z.partialRecord(LossName, z.union([z.literal('served'), LossName])), // served, or by which other
    temperature: z.enum(['served', 'refused']), // of sampling, other than 1
    adapters: z.enum(['archive', 'external weights', 'none']),
    run: z.string(), // the loss of a default run
    resumed: z.boolean(),
  }),
});
export type Contract = z.output<typeof Contract> & { readonly file: string };

const folder = `${compatFolder}servers/`;

/** All contracts, by the name of their file. */
export function readContracts(): Contract[] {
  return readdirSync(folder)
    .filter((file) => file.endsWith('.json'))
    .sort()
    .map((file) => {
      const json: unknown = JSON.parse(readFileSync(folder + file, 'utf8'));
      return checked({ ...Contract.parse(json), file });
    });
}

function checked(contract: Contract): Contract {
  const { file, files, errors, sequenceIds, calls, facts } = contract;
  const named = [errors, sequenceIds, ...Object.values(calls), ...facts].map(({ from }) => from);
  const unknown = named.find((from) => !Object.hasOwn(files, from));
  if (unknown !== undefined) throw new Error(`${file} names the source ${unknown}, not in files`);
  return contract;
}
