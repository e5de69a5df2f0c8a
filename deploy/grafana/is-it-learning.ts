import { ofRun, rate, type Question } from './question.js';

export const isItLearning: Question = {
  uid: 'offbeat-learning',
  title: 'Offbeat: is it learning?',
  description:
    'How good the policy is, on problems that it never sees and on those that it trains on.',
  panels: [
    {
      title: 'Held-out problems solved',
      description:
        'Exactly solved at the last evaluation: sampled at the training temperature, greedily, and pass@k. ' +
        'When pass@k falls while sampled rises, variety is being spent.',
      unit: 'percentunit',
      queries: [{ promql: ofRun('rl_eval_score', 'difficulty="all"'), legend: '{{metric}}' }],
    },
    {
      title: 'Held-out problems solved, by difficulty',
      description:
        'Sampled at the training temperature. Empty where all problems are of one difficulty.',
      unit: 'percentunit',
      queries: [
        {
          promql: ofRun('rl_eval_score', 'metric="sampled"', 'difficulty!="all"'),
          legend: '{{difficulty}}',
        },
      ],
    },
    {
      title: 'Reward',
      description:
        'Mean over all answers that a step consumed, those of groups without variance included. It counts ' +
        'shaping and penalties too: where it rises and the solved share does not, the reward pays for something else.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_reward'), legend: 'reward' }],
    },
    {
      title: 'Answers by what was found',
      description:
        'Shares of the scored answers, correct ones included, by the reason of their score.',
      unit: 'percentunit',
      isStacked: true,
      queries: [
        {
          promql:
            `${rate('reward_service_scores_total', ['reason'], 'source="stream"')} ` +
            `/ on (run) group_left ${rate('reward_service_scores_total', [], 'source="stream"')}`,
          legend: '{{reason}}',
        },
      ],
    },
    {
      title: 'Groups by outcome',
      description: 'Only mixed groups have something to teach.',
      unit: 'percentunit',
      isStacked: true,
      queries: [
        {
          promql:
            `${rate('rl_group_outcome_total', ['kind'])} ` +
            `/ on (run) group_left ${rate('rl_group_outcome_total', [])}`,
          legend: '{{kind}}',
        },
      ],
    },
    {
      title: 'Entropy',
      description: 'Nats a token. What falls towards 0 cannot explore any more.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_entropy'), legend: '{{kind}}' }],
    },
    {
      title: 'Steps a minute',
      description: 'Confirmed by the backend; each makes one version.',
      unit: 'short',
      queries: [
        { promql: `60 * ${rate('rl_steps_total', [])}`, legend: 'steps' },
        { promql: `60 * ${rate('rl_optimizer_steps_total', [])}`, legend: 'optimizer steps' },
      ],
    },
    {
      title: 'Versions',
      description: 'The newest that actors can sample with, and the step of the newest checkpoint.',
      unit: 'none',
      queries: [
        { promql: ofRun('rl_policy_version'), legend: 'published version' },
        { promql: ofRun('rl_checkpoint_step'), legend: 'checkpointed step' },
      ],
    },
    {
      title: 'Learning rate',
      description: 'Of the newest optimizer step.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_learning_rate'), legend: 'learning rate' }],
    },
  ],
};
