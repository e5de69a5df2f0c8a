/** A metric of the canonical set, as it must be exported. */
export interface CanonicalMetric {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly of: 'learner' | 'actor';
  /** By label, values that every run of an hour has. */
  readonly labels?: Readonly<Record<string, readonly string[]>>;
}

/** One fact about a run that `/metrics` and `metrics.jsonl` must have. */
export interface CanonicalRow {
  readonly meaning: string;
  readonly exported: readonly CanonicalMetric[];
  readonly journal: readonly string[];
}

/**
 * The facts that asynchronous, off-policy training must report. This list checks the code and its
 * pages, so it is derived from neither: rename nothing here because the code has changed.
 */
export const canonicalSet: readonly CanonicalRow[] = [
  {
    meaning: 'staleness of trained data',
    exported: [
      {
        name: 'rl_trained_staleness_steps',
        type: 'histogram',
        of: 'learner',
        labels: { basis: ['oldest_token', 'newest_token', 'token_weighted'] },
      },
    ],
    journal: [
      'staleness/mean',
      'staleness/max',
      'staleness/newest_token/mean',
      'staleness/token_weighted/mean',
    ],
  },
  {
    meaning: 'its parts: in flight and in the queue',
    exported: [
      {
        name: 'rl_staleness_component_steps',
        type: 'histogram',
        of: 'learner',
        labels: { component: ['in_flight', 'in_queue'] },
      },
    ],
    journal: ['staleness/in_flight/mean', 'staleness/in_queue/mean'],
  },
  {
    meaning: 'versions inside one rollout',
    exported: [{ name: 'rl_rollout_version_span', type: 'histogram', of: 'learner' }],
    journal: ['version_span/mean', 'version_span/max'],
  },
  {
    meaning: 'what was dropped, by reason',
    exported: [
      {
        name: 'rl_groups_dropped_total',
        type: 'counter',
        of: 'learner',
        labels: { stage: ['intake'], reason: ['zero_variance'] },
      },
      {
        name: 'rl_tokens_wasted_total',
        type: 'counter',
        of: 'learner',
        labels: { reason: ['zero_variance'] },
      },
    ],
    journal: ['dropped/intake/zero_variance', 'tokens_wasted/zero_variance'],
  },
  {
    meaning: 'what the run has cost',
    exported: [
      {
        name: 'rl_run_tokens',
        type: 'gauge',
        of: 'learner',
        labels: { use: ['sampled', 'trained', 'evaluated', 'wasted', 'in_flight'] },
      },
      {
        name: 'rl_run_tokens_wasted',
        type: 'gauge',
        of: 'learner',
        labels: { reason: ['zero_variance'] },
      },
      {
        name: 'rl_held_seconds',
        type: 'gauge',
        of: 'learner',
        labels: { role: ['sampler', 'trainer', 'reward'] },
      },
    ],
    journal: [
      'run_tokens/sampled',
      'run_tokens/trained',
      'run_tokens/wasted',
      'run_tokens/in_flight',
      'held_seconds/sampler',
      'held_seconds/trainer',
    ],
  },
  {
    meaning: 'depth of the queues',
    exported: [
      {
        name: 'rl_stream_depth',
        type: 'gauge',
        of: 'learner',
        labels: { stream: ['tickets', 'rollouts', 'scored', 'dead'] },
      },
      {
        name: 'rl_oldest_age_seconds',
        type: 'gauge',
        of: 'learner',
        labels: { stream: ['tickets', 'rollouts', 'scored', 'dead'] },
      },
      {
        name: 'rl_consumer_pending',
        type: 'gauge',
        of: 'learner',
        labels: { consumer: ['tickets.train', 'rollouts', 'scored.train'] },
      },
      {
        name: 'rl_consumer_ack_pending',
        type: 'gauge',
        of: 'learner',
        labels: { consumer: ['tickets.train', 'rollouts', 'scored.train'] },
      },
    ],
    journal: [
      'stream_depth/tickets',
      'stream_depth/rollouts',
      'stream_depth/scored',
      'stream_depth/dead',
      'oldest_age_seconds/tickets',
      'oldest_age_seconds/scored',
      'consumer_pending/tickets.train',
      'consumer_pending/rollouts',
      'consumer_pending/scored.train',
      'consumer_ack_pending/tickets.train',
      'consumer_ack_pending/rollouts',
      'consumer_ack_pending/scored.train',
    ],
  },
  {
    meaning: 'a learner that starves',
    exported: [
      {
        name: 'rl_learner_idle_seconds_total',
        type: 'counter',
        of: 'learner',
        labels: { cause: ['groups'] },
      },
    ],
    journal: ['idle/groups', 'idle/window', 'idle/version', 'idle_seconds'],
  },
  {
    meaning: 'actors that are blocked',
    exported: [
      {
        name: 'rl_actor_idle_seconds_total',
        type: 'counter',
        of: 'actor',
        labels: { cause: ['ticket'] },
      },
    ],
    journal: [
      'actors/idle_seconds/ticket',
      'actors/idle_seconds/policy',
      'actors/idle_seconds/publish',
    ],
  },
  {
    meaning: 'KL of the sampler and the trainer',
    exported: [
      {
        name: 'rl_kl_sample_train',
        type: 'gauge',
        of: 'learner',
        labels: { estimator: ['v1', 'v2', 'k3'], staleness: ['all'] },
      },
    ],
    journal: ['kl_sample_train_v1', 'kl_sample_train_v2', 'kl_sample_train_k3'],
  },
  {
    meaning: 'effective sample size',
    exported: [{ name: 'rl_ess_ratio', type: 'gauge', of: 'learner' }],
    journal: ['ess_ratio'],
  },
  {
    meaning: 'share that is masked or clipped',
    exported: [
      {
        name: 'rl_is_masked_fraction',
        type: 'gauge',
        of: 'learner',
        labels: { side: ['low', 'high'] },
      },
    ],
    journal: ['ratio/below_share', 'ratio/above_share'],
  },
  {
    meaning: 'entropy',
    exported: [{ name: 'rl_entropy', type: 'gauge', of: 'learner', labels: { kind: ['sampled'] } }],
    journal: ['trained/entropy', 'entropy'],
  },
  {
    meaning: 'publication of weights',
    exported: [
      {
        name: 'rl_publish_seconds',
        type: 'histogram',
        of: 'learner',
        labels: { phase: ['save', 'session', 'manifest'] },
      },
      { name: 'rl_publish_to_first_token_seconds', type: 'histogram', of: 'actor' },
    ],
    journal: [
      'publish_seconds/save',
      'publish_seconds/session',
      'publish_seconds/manifest',
      'publish_to_first_token_seconds',
    ],
  },
  {
    meaning: 'mean reward',
    exported: [{ name: 'rl_reward', type: 'gauge', of: 'learner' }],
    journal: ['env/all/reward/total'],
  },
  {
    meaning: 'solved share, of new and of rehearsed problems',
    exported: [
      {
        name: 'rl_solved_share',
        type: 'gauge',
        of: 'learner',
        labels: { kind: ['all', 'new', 'rehearsal'] },
      },
    ],
    journal: ['env/all/correct', 'env/new/correct', 'env/rehearsal/correct'],
  },
  {
    meaning: 'quality of the groups',
    exported: [
      {
        name: 'rl_group_outcome_total',
        type: 'counter',
        of: 'learner',
        labels: { kind: ['mixed'] },
      },
    ],
    journal: ['by_group/frac_mixed', 'by_group/frac_all_good', 'by_group/frac_all_bad'],
  },
  {
    meaning: 'evaluation and its lag',
    exported: [
      { name: 'rl_eval_lag_steps', type: 'gauge', of: 'learner' },
      {
        name: 'rl_eval_score',
        type: 'gauge',
        of: 'learner',
        labels: { metric: ['sampled', 'greedy'], difficulty: ['all'] },
      },
    ],
    journal: ['eval/lag', 'eval/version', 'eval/sampled', 'eval/greedy'],
  },
  {
    meaning: 'bias by length',
    exported: [{ name: 'rl_length_ks_distance', type: 'gauge', of: 'learner' }],
    journal: ['length_ks_distance'],
  },
  {
    meaning: 'concurrency',
    exported: [
      { name: 'rl_actor_inflight', type: 'gauge', of: 'actor' },
      { name: 'rl_actor_limit', type: 'gauge', of: 'actor' },
      { name: 'rl_tickets_outstanding', type: 'gauge', of: 'learner' },
    ],
    journal: ['actors/inflight', 'actors/limit', 'groups/outstanding'],
  },
];

/** The health of the event loop, which prom-client exports of every process. */
export const eventLoop = {
  exported: [
    'nodejs_eventloop_lag_p50_seconds',
    'nodejs_eventloop_lag_p90_seconds',
    'nodejs_eventloop_lag_p99_seconds',
    'nodejs_eventloop_lag_max_seconds',
  ],
  shown: ['nodejs_eventloop_lag_p99_seconds'],
  journal: ['eventloop_lag_seconds/p99', 'eventloop_lag_seconds/max'],
};

/** The step metrics of the synchronous loop that this project began with, by their names. */
export const namesOfTheSeed = [
  'env/all/correct',
  'env/all/format',
  'env/all/reward/total',
  'entropy',
  'kl_sample_train_v1',
  'kl_sample_train_v2',
  'ac_tokens_per_turn',
];
