import {
  offPolicyStats,
  offPolicyStatsByStaleness,
  type OffPolicyStats,
  type RatioBounds,
  unbounded,
  type VersionedPairs,
} from '../../shared/rl/off-policy.js';
import {
  allowedCount,
  allowedPairs,
  mayTrainOn,
  type StalenessBound,
} from '../../shared/rl/staleness-bound.js';
import { ratioBounds } from '../../shared/rl/losses.js';
import type { Correction } from '../../shared/rl/objective.js';
import { staleness as stalenessOf, type Rewind } from '../../shared/rl/staleness.js';
import { tokenMean } from '../../shared/rl/token-terms.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { StatTable } from '../report/stat-table.js';
import type { TrainedGroup } from './collected-step.js';
import type { MinibatchResult } from './minibatch-pass.js';

const trainedStaleness = (basis: string) => ({
  prometheus: 'rl_trained_staleness_steps',
  help: 'Steps between the policy that trains on a group and the version of its tokens, of those that are trained on.',
  by: { basis },
  buckets: [0, 1, 2, 4, 8, 16],
});
const stalenessPart = (component: string) => ({
  prometheus: 'rl_staleness_component_steps',
  help: 'The part of the staleness that arose while sampling and scoring, or while waiting in the learner.',
  by: { component },
  buckets: [0, 1, 2, 4, 8, 16],
});
const outsideShare = (side: string) => ({
  prometheus: 'rl_is_masked_fraction',
  help: "Share of tokens that are masked, or whose ratio lies outside the loss's bounds.",
  by: { side },
});
const age =
  (key: keyof StalenessParts) =>
  ({ staleness }: StepData): number[] =>
    staleness.map((parts) => parts[key]);

/** The staleness of a step's data and the effects of its corrections and extra terms. */
const stepStats = new StatTable<StepData>([
  {
    ...trainedStaleness('oldest_token'),
    jsonl: 'staleness/mean',
    jsonlMax: 'staleness/max',
    of: age('oldest'),
  },
  { ...trainedStaleness('newest_token'), jsonl: 'staleness/newest_token/mean', of: age('newest') },
  {
    ...trainedStaleness('token_weighted'),
    jsonl: 'staleness/token_weighted/mean',
    of: age('weighted'),
  },
  { ...stalenessPart('in_flight'), jsonl: 'staleness/in_flight/mean', of: age('inFlight') },
  { ...stalenessPart('in_queue'), jsonl: 'staleness/in_queue/mean', of: age('inQueue') },
  {
    jsonl: 'staleness/optimizer_steps/mean',
    jsonlMax: 'staleness/optimizer_steps/max',
    prometheus: 'rl_trained_staleness_optimizer_steps',
    help: 'Optimizer steps between the weights that train on a group and those of its oldest token.',
    buckets: [0, 1, 2, 4, 8, 16, 32],
    of: age('optimizerSteps'),
  },
  {
    prometheus: 'rl_staleness_bound_steps',
    help: 'How many steps old the data of a step may be at most: max_steps_off_policy.',
    of: ({ config }) => config.maxStepsOffPolicy,
  },
  {
    jsonl: 'version_span/mean',
    jsonlMax: 'version_span/max',
    prometheus: 'rl_rollout_version_span',
    help: 'How many versions sampled the tokens of one rollout.',
    buckets: [1, 2, 3, 4, 8],
    of: ({ spans }) => spans,
  },
  {
    jsonl: 'loss/sum',
    of: ({ results }) => results.reduce((sum, { lossSum }) => sum + lossSum, 0),
  },
  { jsonl: 'stale_tokens/count', of: ({ staleTokens }) => staleTokens.count },
  {
    jsonl: 'stale_tokens/share',
    prometheus: 'rl_stale_token_fraction',
    help: 'Share of the tokens of the groups of a step that are masked because they are beyond the bound; only with --window-policy tokens.',
    of: ({ staleTokens }) => staleTokens.count / staleTokens.of,
  },
  { jsonl: 'mask/low_share', of: ({ masked }) => masked?.low },
  { jsonl: 'mask/high_share', of: ({ masked }) => masked?.high },
  {
    ...outsideShare('low'),
    of: ({ masked, offPolicy }) => offPolicy && (masked?.low ?? offPolicy.belowShare),
  },
  {
    ...outsideShare('high'),
    of: ({ masked, offPolicy }) => offPolicy && (masked?.high ?? offPolicy.aboveShare),
  },
  {
    jsonl: 'weights/mean',
    prometheus: 'rl_is_weight_mean',
    help: 'Mean importance weight of the tokens of a step, truncated; 1 on-policy.',
    of: ({ weights }) => weights && tokenMean(weights.ofTokens),
  },
  {
    jsonl: 'weights/capped_share',
    of: ({ weights }) => weights && tokenShare(weights.ofTokens, (each) => each >= weights.cap),
  },
  {
    jsonl: 'kl_policy_base',
    prometheus: 'rl_kl_base',
    help: 'Divergence of the policy that sampled from the base model, nats per token.',
    of: ({ results }) => unlessEmpty(results.flatMap(({ terms }) => terms.klToBase ?? [])),
  },
  {
    jsonl: 'entropy_bonus',
    of: ({ results }) => {
      const coefficients = results.map(({ terms }) => terms.entropyCoefficient);
      return coefficients.reduce((sum, each) => sum + each, 0) > 0 ? coefficients : undefined;
    },
  },
]);

/** By substep as well, since later substeps are further off-policy, which staleness does not show. */
const everyPart = ['staleness', 'substep'];
const divergence = (estimator: string) => ({
  prometheus: 'rl_kl_sample_train',
  help: 'Divergence of the policy in training from the one that sampled, nats per token.',
  by: { estimator, staleness: 'all' },
  parts: everyPart,
});

/** How far a step was off-policy: as a whole, and by staleness and substep. */
const ratioStats = new StatTable<OffPolicyStats>([
  { ...divergence('v1'), jsonl: 'kl_sample_train_v1', of: ({ klV1 }) => klV1 },
  { ...divergence('v2'), jsonl: 'kl_sample_train_v2', of: ({ klV2 }) => klV2 },
  { ...divergence('k3'), jsonl: 'kl_sample_train_k3', of: ({ klK3 }) => klK3 },
  {
    jsonl: 'ess_ratio',
    prometheus: 'rl_ess_ratio',
    help: 'Effective sample size of the importance ratios, as a share of the tokens.',
    parts: everyPart,
    of: ({ essRatio }) => essRatio,
  },
  { jsonl: 'ratio/p01', of: ({ ratio }) => ratio.p01 },
  { jsonl: 'ratio/p50', of: ({ ratio }) => ratio.p50 },
  { jsonl: 'ratio/p99', parts: ['staleness'], of: ({ ratio }) => ratio.p99 },
  { jsonl: 'ratio/below_share', parts: ['staleness'], of: ({ belowShare }) => belowShare },
  { jsonl: 'ratio/above_share', parts: ['staleness'], of: ({ aboveShare }) => aboveShare },
  {
    jsonl: 'trained/entropy',
    prometheus: 'rl_entropy',
    help: 'Mean of -logprob over the sampled tokens of a step, nats per token.',
    by: { kind: 'sampled' },
    parts: ['staleness'],
    of: ({ sampledEntropy }) => sampledEntropy,
  },
  { jsonl: 'trained/tokens', of: ({ tokens }) => tokens },
]);

type StepConfig = Pick<
  RunConfig,
  'loss' | 'correction' | 'maxStepsOffPolicy' | 'numSubsteps' | 'numMinibatches'
>;

/** The data that the numbers of a step are computed from. */
interface StepData {
  readonly config: StepConfig;
  readonly staleness: readonly StalenessParts[]; // of its groups
  readonly spans: readonly number[]; // versions that sampled each of its rollouts
  readonly staleTokens: { readonly count: number; readonly of: number }; // tokens masked by the bound
  readonly results: readonly MinibatchResult[];
  readonly masked: { readonly low: number; readonly high: number } | undefined; // shares of the tokens
  readonly weights:
    | { readonly ofTokens: readonly Float64Array[]; readonly cap: number }
    | undefined;
  readonly offPolicy: OffPolicyStats | undefined; // undefined without tokens
}

/**
 * Computes the numbers of a step's data and of how far it was off-policy, by their keys in
 * `metrics.jsonl`; also sets them in Prometheus.
 *
 * @param version that trained on the groups.
 */
export function reportStep(
  config: StepConfig,
  version: number,
  trained: readonly TrainedGroup[],
  results: readonly MinibatchResult[],
  rewinds: readonly Rewind[] = [],
): Record<string, number> {
  const { loss, correction, numSubsteps, numMinibatches } = config;
  const { mask, weights } = correction;
  const bound = { version, maxStepsOffPolicy: config.maxStepsOffPolicy, rewinds };
  const freshOf = ({ rollouts }: MinibatchResult) =>
    rollouts.map((pairs) => allowedPairs(pairs, bound));
  const rollouts = results.flatMap(freshOf);
  const corrected = results.flatMap(({ corrected }) => corrected ?? []);
  const sides = corrected.map(({ sides }) => sides);
  const bounds = correctionBounds(correction) ?? ratioBounds(loss.name, loss.config);
  const offPolicy = offPolicyStats(rollouts, bounds);
  const ageOf = (sampledBy: number): number => stalenessOf(version, [sampledBy], rewinds);
  const report = stepStats.record({
    config,
    staleness: trained.map((group) => stalenessPartsOf(group, numSubsteps, bound)),
    staleTokens: staleTokensOf(trained, bound),
    spans: trained.flatMap(({ group }) =>
      group.scored.group.rollouts.map(({ versions }) => versions.length),
    ),
    results,
    masked:
      mask.kind === 'none'
        ? undefined
        : {
            low: tokenShare(sides, (side) => side < 0),
            high: tokenShare(sides, (side) => side > 0),
          },
    weights:
      weights.kind === 'none'
        ? undefined
        : { ofTokens: corrected.map(({ weights }) => weights), cap: weights.cap },
    offPolicy,
  });
  if (offPolicy === undefined) return report;
  return {
    ...report,
    ...ratioStats.record(offPolicy),
    ...ratioStats.recordParts('staleness', offPolicyStatsByStaleness(rollouts, ageOf, bounds)),
    ...ratioStats.recordParts(
      'substep',
      statsBySubstep(results.map(freshOf), numMinibatches, bounds),
    ),
  };
}

/** The ratios outside of which a correction masks or truncates single tokens; undefined if none does. */
function correctionBounds({ weights, mask }: Correction): RatioBounds | undefined {
  if (mask.kind === 'icepop') return { low: mask.low, high: mask.high };
  if (weights.kind === 'token') return { low: 0, high: weights.cap };
  // The bounds of the loss then are those of another ratio, to the policy at the start of the step.
  return weights.kind === 'sequence' ? unbounded : undefined;
}

/** The off-policy numbers of each substep; none if the step has a single one. */
function* statsBySubstep(
  results: readonly (readonly VersionedPairs[])[], // of each minibatch
  numMinibatches: number,
  bounds: RatioBounds,
): Generator<[substep: number, OffPolicyStats]> {
  if (results.length <= numMinibatches) return;
  for (let first = 0; first < results.length; first += numMinibatches) {
    const stats = offPolicyStats(results.slice(first, first + numMinibatches).flat(), bounds);
    if (stats !== undefined) yield [first / numMinibatches, stats];
  }
}

/** How old the tokens of a group are that are trained on, in steps except for `optimizerSteps`. */
interface StalenessParts {
  readonly oldest: number; // with the window policies wait and drop the group's staleness
  readonly newest: number;
  readonly weighted: number; // mean over its tokens
  readonly inFlight: number; // part of `oldest` that arose while it was sampled and scored
  readonly inQueue: number; // part of `oldest` that arose while it waited in the learner
  readonly optimizerSteps: number; // since the weights that drew its oldest token
}

function stalenessPartsOf(
  { group, substep }: TrainedGroup,
  numSubsteps: number,
  bound: StalenessBound,
): StalenessParts {
  const ageOf = (sampledBy: number): number =>
    stalenessOf(bound.version, [sampledBy], bound.rewinds);
  const runs = group.scored.group.rollouts
    .flatMap(({ versions }) => versions)
    .filter(([sampledBy]) => mayTrainOn(sampledBy, bound));
  const ages = runs.map(([sampledBy]) => ageOf(sampledBy));
  const tokens = runs.reduce((sum, [, count]) => sum + count, 0);
  const oldest = Math.max(...ages);
  const inQueue = bound.version - group.arrivedAtVersion;
  return {
    oldest,
    newest: Math.min(...ages),
    weighted: runs.reduce((sum, [by, count]) => sum + ageOf(by) * count, 0) / tokens,
    inFlight: oldest - inQueue,
    inQueue,
    // Each version is `numSubsteps` optimizer steps; the substeps before its own add to them.
    optimizerSteps: oldest * numSubsteps + substep,
  };
}

/** The tokens of the groups that the bound masks. */
function staleTokensOf(
  trained: readonly TrainedGroup[],
  bound: StalenessBound,
): StepData['staleTokens'] {
  const rollouts = trained.flatMap(({ group }) => group.scored.group.rollouts);
  const of = rollouts.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const fresh = rollouts.reduce((sum, { versions }) => sum + allowedCount(versions, bound), 0);
  return { count: of - fresh, of };
}

function tokenShare(
  rollouts: readonly ArrayLike<number>[],
  isCounted: (value: number) => boolean,
): number {
  return tokenMean(
    rollouts.map((values) => Array.from(values, (value) => Number(isCounted(value)))),
  );
}

function unlessEmpty<T>(values: readonly T[]): readonly T[] | undefined {
  return values.length === 0 ? undefined : values;
}
