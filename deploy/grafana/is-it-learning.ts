import { ofRun, rate, type Question } from './question.js';

export const isItLearning: Question = {
  uid: 'offbeat-learning',
  title: 'Offbeat: is it learning?',
  description: 'The quality of the policy on held-out problems and on training problems.',
  panels: [
    {
      title: 'Held-out problems solved',
      description:
        'Share solved exactly at the last evaluation: sampled at the training temperature, greedy, and pass@k. ' +
        'When pass@k falls while sampled rises, answers lose diversity.',
      unit: 'percentunit',
      queries: [{ promql: ofRun('rl_eval_score', 'difficulty="all"'), legend: '{{metric}}' }],
    },
    {
      title: 'Held-out problems solved, by difficulty',
      description:
        'Sampled at the training temperature. Empty if all problems have the same difficulty.',
      unit: 'percentunit',
      queries: [
        {
          promql: ofRun('rl_eval_score', 'metric="sampled"', 'difficulty!="all"'),
          legend: '{{difficulty}}',
        },
      ],
    },
    {
      title: 'Training problems solved',
      description:
        "Share of the last step's answers that are correct. Where the run also rehearses problems of a known kind, compare " +
        'the new ones with the held-out problems: all together show more.',
      unit: 'percentunit',
      queries: [{ promql: ofRun('rl_solved_share'), legend: '{{kind}}' }],
    },
    {
      title: 'Reward',
      description:
        'Mean over all answers that a step consumed, including those of groups without variance. It includes ' +
        'shaping and penalties: if it rises and the solved share does not, the policy optimizes something else.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_reward'), legend: 'reward' }],
    },
    {
      title: 'Answers by reason of their score',
      description: 'Shares of the scored answers, including correct ones.',
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
      description:
        'Mixed groups always provide a training signal. Others do only if shaping gives their answers different rewards.',
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
      description: 'Nats per token. A policy whose entropy falls towards 0 stops exploring.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_entropy'), legend: '{{kind}}' }],
    },
    {
      title: 'Steps per minute',
      description: 'Steps confirmed by the backend; each creates one version.',
      unit: 'short',
      queries: [
        { promql: `60 * ${rate('rl_steps_total', [])}`, legend: 'steps' },
        { promql: `60 * ${rate('rl_optimizer_steps_total', [])}`, legend: 'optimizer steps' },
      ],
    },
    {
      title: 'Versions',
      description:
        'The newest version that actors can sample with, and the step of the newest checkpoint.',
      unit: 'none',
      queries: [
        { promql: ofRun('rl_policy_version'), legend: 'published version' },
        { promql: ofRun('rl_checkpoint_step'), legend: 'checkpointed step' },
      ],
    },
    {
      title: 'Learning rate',
      description: 'Learning rate of the newest optimizer step.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_learning_rate'), legend: 'learning rate' }],
    },
  ],
};
