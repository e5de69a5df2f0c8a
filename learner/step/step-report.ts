import { Gauge, Histogram } from 'prom-client';
import { mean } from '../../shared/base/statistics.js';
import {
  offPolicyStats,
  offPolicyStatsByStaleness,
  type OffPolicyStats,
  type RatioBounds,
} from '../../shared/rl/off-policy.js';
import { ratioBounds } from '../../shared/rl/losses.js';
import { staleness as stalenessOf, type Rewind } from '../../shared/rl/staleness.js';
import type { RunConfig } from '../../shared/run/run-config.js';
import { correctionBounds, reportCorrections } from './correction-report.js';
import type { ArrivedGroup } from '../groups/intake.js';
import type { MinibatchResult } from './minibatch-pass.js';

const trainedStaleness = new Histogram({
  name: 'rl_trained_staleness_steps',
  help: 'Steps between the policy that trains on a group and the version of its tokens.',
  labelNames: ['basis'],
  buckets: [0, 1, 2, 4, 8, 16],
});

const stalenessBound = new Gauge({
  name: 'rl_staleness_bound_steps',
  help: 'How many steps old the data of a step may be at most: max_steps_off_policy.',
});

const optimizerStaleness = new Histogram({
  name: 'rl_trained_staleness_optimizer_steps',
  help: 'Optimizer steps between the weights that train on a group and those of its oldest token.',
  buckets: [0, 1, 2, 4, 8, 16, 32],
});

const stalenessComponent = new Histogram({
  name: 'rl_staleness_component_steps',
  help: 'The part of the staleness that arose while sampling and scoring, and while waiting here.',
  labelNames: ['component'],
  buckets: [0, 1, 2, 4, 8, 16],
});

const versionSpan = new Histogram({
  name: 'rl_rollout_version_span',
  help: 'How many versions sampled the tokens of one rollout.',
  buckets: [1, 2, 3, 4, 8],
});

const divergence = new Gauge({
  name: 'rl_kl_sample_train',
  help: 'Divergence of the policy in training from the one that sampled, nats a token.',
  labelNames: ['estimator', 'staleness'],
});

const essRatio = new Gauge({
  name: 'rl_ess_ratio',
  help: 'Effective sample size of the importance ratios, as a share of the tokens.',
});

const outsideShare = new Gauge({
  name: 'rl_is_masked_fraction',
  help: "Share of tokens that are masked, or whose ratio lies outside the loss's bounds.",
  labelNames: ['side'],
});

const sampledEntropy = new Gauge({
  name: 'rl_entropy',
  help: 'Mean of -logprob over the sampled tokens of a step, nats a token.',
  labelNames: ['kind'],
});

/** A group that a step trained on. */
export interface TrainedGroup {
  readonly group: ArrivedGroup;
  readonly staleness: number; // in steps
  readonly substep: number; // that took it
}

/**
 * What a step says of its data and of how far it was off-policy, by the names of `metrics.jsonl`;
 * sets the gauges of `/metrics` alongside.
 *
 * @param version that trained on the groups.
 */
export function reportStep(
  config: Pick<
    RunConfig,
    'loss' | 'correction' | 'maxStepsOffPolicy' | 'numSubsteps' | 'numMinibatches'
  >,
  version: number,
  trained: readonly TrainedGroup[],
  results: readonly MinibatchResult[],
  rewinds: readonly Rewind[] = [],
): Record<string, number> {
  const { loss, correction, numSubsteps, numMinibatches } = config;
  const ages = trained.map((group) => agesOf(group, { version, numSubsteps, rewinds }));
  for (const age of ages) observeAges(age);
  stalenessBound.set(config.maxStepsOffPolicy);
  const spans = trained.flatMap(({ group }) =>
    group.scored.group.rollouts.map(({ versions }) => versions.length),
  );
  for (const span of spans) versionSpan.observe(span);
  const rollouts = results.flatMap(({ rollouts }) => rollouts);
  const bounds = correctionBounds(correction) ?? ratioBounds(loss.name, loss.config);
  const metrics: Record<string, number> = {
    'staleness/mean': mean(ages.map(({ oldest }) => oldest)),
    'staleness/max': Math.max(...ages.map(({ oldest }) => oldest)),
    'staleness/newest_token/mean': mean(ages.map(({ newest }) => newest)),
    'staleness/token_weighted/mean': mean(ages.map(({ weighted }) => weighted)),
    'staleness/in_flight/mean': mean(ages.map(({ inFlight }) => inFlight)),
    'staleness/in_queue/mean': mean(ages.map(({ inQueue }) => inQueue)),
    'staleness/optimizer_steps/mean': mean(ages.map(({ optimizerSteps }) => optimizerSteps)),
    'staleness/optimizer_steps/max': Math.max(...ages.map(({ optimizerSteps }) => optimizerSteps)),
    'version_span/mean': mean(spans),
    'version_span/max': spans.reduce((most, span) => Math.max(most, span), 0),
    'loss/sum': results.reduce((sum, { lossSum }) => sum + lossSum, 0),
    ...reportCorrections(correction, results),
  };

  const all = offPolicyStats(rollouts, bounds);
  if (all === undefined) return metrics;
  essRatio.set(all.essRatio);
  outsideShare.set({ side: 'low' }, metrics['mask/low_share'] ?? all.belowShare);
  outsideShare.set({ side: 'high' }, metrics['mask/high_share'] ?? all.aboveShare);
  sampledEntropy.set({ kind: 'sampled' }, all.sampledEntropy);
  divergence.reset(); // a staleness that this step does not have
  setDivergence('all', all);
  Object.assign(metrics, {
    kl_sample_train_v1: all.klV1,
    kl_sample_train_v2: all.klV2,
    kl_sample_train_k3: all.klK3,
    ess_ratio: all.essRatio,
    'ratio/p01': all.ratio.p01,
    'ratio/p50': all.ratio.p50,
    'ratio/p99': all.ratio.p99,
    'ratio/below_share': all.belowShare,
    'ratio/above_share': all.aboveShare,
    'trained/entropy': all.sampledEntropy,
    'trained/tokens': all.tokens,
  });
  for (const [staleness, stats] of offPolicyStatsByStaleness(rollouts, bounds)) {
    setDivergence(String(staleness), stats);
    const suffix = `staleness_${staleness}`;
    metrics[`kl_sample_train_v1/${suffix}`] = stats.klV1;
    metrics[`kl_sample_train_v2/${suffix}`] = stats.klV2;
    metrics[`kl_sample_train_k3/${suffix}`] = stats.klK3;
    metrics[`ess_ratio/${suffix}`] = stats.essRatio;
    metrics[`ratio/below_share/${suffix}`] = stats.belowShare;
    metrics[`ratio/above_share/${suffix}`] = stats.aboveShare;
    metrics[`ratio/p99/${suffix}`] = stats.ratio.p99;
    metrics[`trained/entropy/${suffix}`] = stats.sampledEntropy;
  }
  return { ...metrics, ...bySubstep(results, numMinibatches, bounds) };
}

/** What is further off-policy in later substeps, which no staleness shows. */
function bySubstep(
  results: readonly MinibatchResult[],
  numMinibatches: number,
  bounds: RatioBounds,
): Record<string, number> {
  const metrics: Record<string, number> = {};
  if (results.length <= numMinibatches) return metrics; // a single one
  for (let first = 0; first < results.length; first += numMinibatches) {
    const part = results.slice(first, first + numMinibatches);
    const stats = offPolicyStats(
      part.flatMap(({ rollouts }) => rollouts),
      bounds,
    );
    if (stats === undefined) continue;
    const suffix = `substep_${first / numMinibatches}`;
    metrics[`kl_sample_train_v1/${suffix}`] = stats.klV1;
    metrics[`kl_sample_train_v2/${suffix}`] = stats.klV2;
    metrics[`kl_sample_train_k3/${suffix}`] = stats.klK3;
    metrics[`ess_ratio/${suffix}`] = stats.essRatio;
  }
  return metrics;
}

function setDivergence(staleness: string, { klV1, klV2, klK3 }: OffPolicyStats): void {
  divergence.set({ estimator: 'v1', staleness }, klV1);
  divergence.set({ estimator: 'v2', staleness }, klV2);
  divergence.set({ estimator: 'k3', staleness }, klK3);
}

/** How old a group is when it is trained on, in steps but for the last. */
interface Ages {
  readonly oldest: number; // of its tokens: its staleness
  readonly newest: number;
  readonly weighted: number; // mean over its tokens
  readonly inFlight: number; // of `oldest`: what arose while it was sampled and scored
  readonly inQueue: number; // and while it waited here
  readonly optimizerSteps: number; // since the weights that drew its oldest token
}

function agesOf(
  { group, staleness, substep }: TrainedGroup,
  step: { version: number; numSubsteps: number; rewinds: readonly Rewind[] },
): Ages {
  const ageOf = (sampledBy: number): number => stalenessOf(step.version, [sampledBy], step.rewinds);
  const runs = group.scored.group.rollouts.flatMap(({ versions }) => versions);
  const tokens = runs.reduce((sum, [, count]) => sum + count, 0);
  const inQueue = step.version - group.arrivedAtVersion;
  return {
    oldest: staleness,
    newest: Math.min(...group.sampledBy.map(ageOf)),
    weighted: runs.reduce((sum, [by, count]) => sum + ageOf(by) * count, 0) / tokens,
    inFlight: staleness - inQueue,
    inQueue,
    // Each version is so many optimizer steps, and the substeps before its own come on top.
    optimizerSteps: staleness * step.numSubsteps + substep,
  };
}

function observeAges(ages: Ages): void {
  trainedStaleness.observe({ basis: 'oldest_token' }, ages.oldest);
  trainedStaleness.observe({ basis: 'newest_token' }, ages.newest);
  trainedStaleness.observe({ basis: 'token_weighted' }, ages.weighted);
  stalenessComponent.observe({ component: 'in_queue' }, ages.inQueue);
  stalenessComponent.observe({ component: 'in_flight' }, ages.inFlight);
  optimizerStaleness.observe(ages.optimizerSteps);
}
