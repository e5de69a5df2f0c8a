import { z } from 'zod';
import { UserError } from '../../shared/base/errors.js';
import { int, listOf, number, string } from '../../shared/service/config-fields.js';
import { describeFlags } from '../../shared/service/config-help.js';
import { type Environment, flagsOf, loadConfig } from '../../shared/service/config.js';
import { refuseFlagsKeptByNpm } from '../../shared/service/npm-flags.js';
import { markdownOf } from '../sweep/table.js';
import { comparePolicies, type Comparison } from './compare.js';
import { comparisonTable } from './comparison-table.js';
import { policies, type PolicyName } from './policies.js';
import { lognormalSeconds, measuredSeconds, readSeconds, Trace } from './trace.js';

const policyNames = Object.keys(policies) as PolicyName[];
const commaSeparated = listOf(string).transform((text) => text.split(','));

/** The defaults are a step of 8 groups of 16 answers with a long tail. */
export const SimulateConfig = z.object({
  policies: commaSeparated
    .pipe(z.array(z.enum(policyNames)))
    .default(policyNames.filter((name) => name !== 'just-in-time'))
    .describe('policies to compare, separated by commas.'),
  bounds: commaSeparated
    .pipe(z.array(z.string().regex(/^\d+$/, 'expected whole numbers').transform(Number)))
    .default([2, 4, 8, 16])
    .describe('values of max_steps_off_policy, separated by commas.'),
  steps: int.positive().default(400).describe('steps that each policy trains.'),
  seed: int.nonnegative().default(0).describe('of the answers.'),
  groupsPerBatch: int.positive().default(8).describe('groups of a step.'),
  groupSize: int.positive().default(16).describe('answers of a group.'),
  numMinibatches: int.positive().default(1).describe('equal parts in which a step is trained.'),
  slots: int.positive().default(128).describe('answers that are sampled at once.'),
  stepSeconds: number.positive().default(3.4).describe('training of one step.'),
  publishSeconds: number
    .nonnegative()
    .default(0)
    .describe('from the end of a step until actors sample with its version.'),
  scoreSeconds: number
    .nonnegative()
    .default(0)
    .describe("from a group's last token until the learner has its rewards."),
  median: number.positive().default(2).describe('seconds of an answer, lognormal.'),
  sigma: number.nonnegative().default(1).describe('its spread: the deviation of its logarithm.'),
  answers: string
    .optional()
    .describe('file of measured seconds of answers, one a line, to draw from instead.'),
  groupsInFlight: int
    .positive()
    .optional()
    .describe('groups that all actors together sample at once; all tickets unless given.'),
  lookahead: int.positive().default(400).describe('groups that longest-first sorts.'),
  predictionError: number
    .nonnegative()
    .default(0.5)
    .describe('of longest-first: the deviation of the logarithm of a predicted length.'),
  spareAnswers: int.nonnegative().default(1).describe('answers of spare beyond the group size.'),
  json: z.boolean().default(false).describe('every figure, for machines.'),
});
export type SimulateConfig = z.infer<typeof SimulateConfig>;

export const simulateService = 'simulate';

/** @throws {UserError} listing every problem at once. */
export function loadSimulateConfig(argv: readonly string[], env: Environment): SimulateConfig {
  refuseFlagsKeptByNpm('simulate', flagsOf(SimulateConfig.shape), argv, env);
  const config = loadConfig(SimulateConfig, simulateService, argv, env);
  const { groupsPerBatch, numMinibatches } = config;
  if (groupsPerBatch % numMinibatches !== 0) {
    throw new UserError(
      `--groups-per-batch ${groupsPerBatch} cannot be divided into --num-minibatches ${numMinibatches} equal parts; give a divisor`,
    );
  }
  return config;
}

export function simulateHelp(): string {
  const lines = policyNames.map(
    (name) =>
      `  ${name.padEnd(14)} ${policies[name].about}${policies[name].isExact ? '' : '; not exact'}`,
  );
  return `npm run simulate -- [flags]: compares policies of the training loop in simulated time.

The learner decides with the same code as in a run. No policy that trains every answer can have more
steps per hour than the first row of a bound says, even if it knows how long each answer takes. The
policies, of which some are not exact, because they lose answers or mask tokens:

${lines.join('\n')}

${describeFlags(SimulateConfig.shape, simulateService)}
`;
}

/** @returns one comparison for each bound and policy, in their order. @throws {UserError} if a file is wrong. */
export async function comparisonsOf(config: SimulateConfig): Promise<Comparison[]> {
  const { answers, median, sigma, seed, bounds } = config;
  const draw =
    answers === undefined
      ? lognormalSeconds(median, sigma)
      : measuredSeconds(await readSeconds(answers));
  const trace = new Trace(draw, seed);
  return bounds.map((bound) =>
    comparePolicies(config.policies, { bound, setting: config, trace, options: config }),
  );
}

/** The text that the program prints. */
export async function simulateText(argv: readonly string[], env: Environment): Promise<string> {
  if (argv.includes('--help')) return simulateHelp();
  const config = loadSimulateConfig(argv, env);
  const comparisons = await comparisonsOf(config);
  if (config.json) return `${JSON.stringify(comparisons, withMaps)}\n`;
  return `${markdownOf(comparisonTable(comparisons))}\n`;
}

function withMaps(key: string, value: unknown): unknown {
  if (key === 'trained') return undefined; // the answers themselves
  return value instanceof Map ? Object.fromEntries(value) : value;
}
