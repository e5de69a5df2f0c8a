import { mean, ofRun, quantile, type Question } from './question.js';

export const isItOffPolicy: Question = {
  uid: 'offbeat-off-policy',
  title: 'Offbeat: is it off-policy?',
  description: 'The age of the training data, where it became stale, and the effect on training.',
  panels: [
    {
      title: 'Staleness',
      description:
        'Mean age of the training data in steps, its bound, and the age for which tickets are issued: less than the bound with auto.',
      unit: 'short',
      queries: [
        { promql: mean('rl_trained_staleness_steps', ['basis']), legend: '{{basis}}' },
        { promql: ofRun('rl_staleness_bound_steps'), legend: 'bound' },
        { promql: ofRun('rl_ticket_bound_steps'), legend: 'tickets for' },
      ],
    },
    {
      title: 'Staleness, quantiles',
      description: 'Age of the oldest token of a group.',
      unit: 'short',
      queries: [0.5, 0.95, 0.99].map((q) => ({
        promql: quantile(q, 'rl_trained_staleness_steps', 'basis="oldest_token"'),
        legend: `p${100 * q}`,
      })),
    },
    {
      title: 'Where data became stale',
      description:
        'During sampling and scoring (in flight), or while waiting at the learner (in queue).',
      unit: 'short',
      isStacked: true,
      queries: [
        { promql: mean('rl_staleness_component_steps', ['component']), legend: '{{component}}' },
      ],
    },
    {
      title: 'Staleness in optimizer steps, and versions per answer',
      description:
        'Staleness including substeps; number of versions that sampled the tokens of one answer.',
      unit: 'short',
      queries: [
        { promql: mean('rl_trained_staleness_optimizer_steps'), legend: 'optimizer steps' },
        { promql: mean('rl_rollout_version_span'), legend: 'versions per answer' },
      ],
    },
    {
      title: 'Divergence of the training policy from the behavior policy',
      description:
        'Nats per token. Below 0.01 is normal, above 0.1 is not; the run stops above --stop-kl.',
      unit: 'short',
      queries: [
        { promql: ofRun('rl_kl_sample_train', 'staleness="all"'), legend: '{{estimator}}' },
      ],
    },
    {
      title: 'Divergence by staleness',
      description:
        'It should be close to 0 at staleness 0; otherwise sampler and trainer disagree.',
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
      description: 'Effective share of the tokens after weighting by importance ratios.',
      unit: 'percentunit',
      queries: [{ promql: ofRun('rl_ess_ratio'), legend: 'effective' }],
    },
    {
      title: 'Tokens outside the bounds of the loss, and beyond the bound on staleness',
      description:
        'Share of tokens that are masked or have a truncated ratio; with --window-policy tokens also of those that are masked ' +
        'because they are too old.',
      unit: 'percentunit',
      queries: [
        { promql: ofRun('rl_is_masked_fraction'), legend: '{{side}}' },
        { promql: ofRun('rl_stale_token_fraction'), legend: 'too old' },
      ],
    },
    {
      title: 'Publication lag',
      description: 'Confirmed steps whose weights are not yet available to actors.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_publish_lag_steps'), legend: 'steps' }],
    },
    {
      title: 'Length bias',
      description:
        'Kolmogorov-Smirnov distance between the lengths of all answers and of those used, over the newest ' +
        '1,024 attempts at tickets. It grows when long answers are given up or come too late.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_length_ks_distance'), legend: 'distance' }],
    },
  ],
};
