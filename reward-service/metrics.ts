import { Counter, Histogram } from 'prom-client';
import type { Score } from '../shared/wire/scored-group.js';

const scores = new Counter({
  name: 'reward_service_scores_total',
  help: 'Completions scored, by reason and by source (stream or http).',
  labelNames: ['reason', 'source'] as const,
});

export const scoredGroups = new Counter({
  name: 'reward_service_groups_total',
  help: 'Groups scored and sent on, by split.',
  labelNames: ['split'] as const,
});

export const refusedGroups = new Counter({
  name: 'reward_service_refused_groups_total',
  help: 'Groups dead-lettered because they do not answer their ticket, by reason.',
  labelNames: ['reason'] as const,
});

export const groupSeconds = new Histogram({
  name: 'reward_service_group_seconds',
  help: 'Time from taking a group until its scores are stored.',
  buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30],
});

/** The time of scoring alone, without waits for the broker or a client. */
export const judgingSeconds = new Histogram({
  name: 'reward_service_judging_seconds',
  help: 'Time to score a group or request, by source (stream or http).',
  labelNames: ['source'] as const,
  buckets: [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1],
});

export const httpSeconds = new Histogram({
  name: 'reward_service_http_seconds',
  help: 'Time from the head of a request to its answer, by status.',
  labelNames: ['status'] as const,
  buckets: [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 10],
});

export function countScores(given: readonly Score[], source: 'stream' | 'http'): void {
  for (const { reason } of given) scores.inc({ reason, source });
}
