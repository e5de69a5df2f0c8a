import { Counter } from 'prom-client';

/** Counted by whoever drops: actors what they abandon, the learner everything else. */
export const groupsDropped = new Counter({
  name: 'rl_groups_dropped_total',
  help: 'Groups that were not trained on, by where and why they were dropped.',
  labelNames: ['stage', 'reason'],
});

export const tokensWasted = new Counter({
  name: 'rl_tokens_wasted_total',
  help: 'Sampled tokens that were not trained on, by why.',
  labelNames: ['reason'],
});
