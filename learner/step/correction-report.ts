import { Gauge } from 'prom-client';
import { mean } from '../../shared/base/statistics.js';
import type { RatioBounds } from '../../shared/rl/off-policy.js';
import { tokenMean } from '../../shared/rl/token-terms.js';
import type { Correction } from '../../shared/rl/objective.js';
import type { MinibatchResult } from './minibatch-pass.js';

const weightMean = new Gauge({
  name: 'rl_is_weight_mean',
  help: 'Mean importance weight of the tokens of a step, truncated; 1 on-policy.',
});

const klToBase = new Gauge({
  name: 'rl_kl_base',
  help: 'Divergence of the policy that sampled from the base model, nats a token.',
});

/** The ratios outside of which a correction masks single tokens or truncates them; undefined: none does. */
export function correctionBounds({ weights, mask }: Correction): RatioBounds | undefined {
  if (mask.kind === 'icepop') return { low: mask.low, high: mask.high };
  if (weights.kind === 'token') return { low: 0, high: weights.cap };
  return undefined;
}

/** What the corrections and the extra terms of a step came to, by the names of `metrics.jsonl`. */
export function reportCorrections(
  correction: Correction,
  results: readonly MinibatchResult[],
): Record<string, number> {
  const metrics: Record<string, number> = {};
  const corrected = results.flatMap(({ corrected }) => corrected ?? []);
  const sides = corrected.map(({ sides }) => sides);
  const weights = corrected.map(({ weights }) => weights);
  if (correction.mask.kind !== 'none') {
    metrics['mask/low_share'] = tokenShare(sides, (side) => side < 0);
    metrics['mask/high_share'] = tokenShare(sides, (side) => side > 0);
  }
  if (correction.weights.kind !== 'none') {
    const { cap } = correction.weights;
    metrics['weights/mean'] = tokenMean(weights);
    metrics['weights/capped_share'] = tokenShare(weights, (weight) => weight >= cap);
    weightMean.set(metrics['weights/mean']);
  }
  const terms = results.map(({ terms }) => terms);
  const divergences = terms.flatMap(({ klToBase }) => klToBase ?? []);
  if (divergences.length > 0) {
    metrics['kl_policy_base'] = mean(divergences);
    klToBase.set(metrics['kl_policy_base']);
  }
  const bonus = mean(terms.map(({ entropyCoefficient }) => entropyCoefficient));
  if (bonus > 0) metrics['entropy_bonus'] = bonus;
  return metrics;
}

function tokenShare(
  rollouts: readonly ArrayLike<number>[],
  isCounted: (value: number) => boolean,
): number {
  return tokenMean(
    rollouts.map((values) => Array.from(values, (value) => Number(isCounted(value)))),
  );
}
