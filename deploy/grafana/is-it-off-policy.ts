import { mean, ofRun, quantile, type Question } from './question.js';

export const isItOffPolicy: Question = {
  uid: 'offbeat-off-policy',
  title: 'Offbeat: is it off-policy?',
  description: 'How old the data is that is trained on, where it grew old, and what that costs.',
  panels: [
    {
      title: 'Staleness',
      description: 'Mean age of what was trained on, in steps, and the most that is allowed.',
      unit: 'short',
      queries: [
        { promql: mean('rl_trained_staleness_steps', ['basis']), legend: '{{basis}}' },
        { promql: ofRun('rl_staleness_bound_steps'), legend: 'bound' },
      ],
    },
    {
      title: 'Staleness, quantiles',
      description: 'Of the oldest token of a group.',
      unit: 'short',
      queries: [0.5, 0.95, 0.99].map((q) => ({
        promql: quantile(q, 'rl_trained_staleness_steps', 'basis="oldest_token"'),
        legend: `p${100 * q}`,
      })),
    },
    {
      title: 'Where it grew old',
      description:
        'While sampled and scored (in flight), or while it waited at the learner (in queue).',
      unit: 'short',
      isStacked: true,
      queries: [
        { promql: mean('rl_staleness_component_steps', ['component']), legend: '{{component}}' },
      ],
    },
    {
      title: 'Optimizer steps in between, and versions of one answer',
      description:
        'What substeps add to staleness; how many versions drew the tokens of one answer.',
      unit: 'short',
      queries: [
        { promql: mean('rl_trained_staleness_optimizer_steps'), legend: 'optimizer steps' },
        { promql: mean('rl_rollout_version_span'), legend: 'versions an answer' },
      ],
    },
    {
      title: 'Divergence of the policy in training from the one that sampled',
      description:
        'Nats a token. Below 0.01 is ordinary, above 0.1 is not; the run gives up above --stop-kl.',
      unit: 'short',
      queries: [
        { promql: ofRun('rl_kl_sample_train', 'staleness="all"'), legend: '{{estimator}}' },
      ],
    },
    {
      title: 'Divergence by staleness',
      description: 'At staleness 0 it should be all but none: else sampler and trainer disagree.',
      unit: 'short',
      queries: [
        {
          promql: ofRun('rl_kl_sample_train', 'estimator="v2"', 'staleness!="all"'),
          legend: 'staleness {{staleness}}',
        },
      ],
    },
    {
      title: 'Effective sample size',
      description: 'Share of the tokens that the importance ratios leave.',
      unit: 'percentunit',
      queries: [{ promql: ofRun('rl_ess_ratio'), legend: 'effective' }],
    },
    {
      title: 'Tokens outside the bounds of the loss',
      description: 'Masked, or with a truncated ratio.',
      unit: 'percentunit',
      queries: [{ promql: ofRun('rl_is_masked_fraction'), legend: '{{side}}' }],
    },
    {
      title: 'Publication is behind',
      description: 'Confirmed steps whose weights no actor can sample with yet.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_publish_lag_steps'), legend: 'steps' }],
    },
    {
      title: 'Bias by length',
      description:
        'Largest gap between the distributions of lengths as admitted and as trained. It grows when ' +
        'short answers overtake long ones.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_length_ks_distance'), legend: 'distance' }],
    },
  ],
};
