import { mean, ofRun, quantile, rate, rateOrZero, type Question } from './question.js';

/** Of the consumer whose messages stay until a checkpoint, only what it was not given is a lag. */
const [scored, other] = ['consumer="scored.train"', 'consumer!="scored.train"'];

export const whoWaitsForWhom: Question = {
  uid: 'offbeat-waiting',
  title: 'Offbeat: who waits for whom?',
  description: 'What each part waits for, what waits in between, and how fast each part is.',
  panels: [
    {
      title: 'The learner waits',
      description:
        'Share of its time in which the backend had nothing to do: for groups (more actors), for an ' +
        'older group (window), or for actors to have a version.',
      unit: 'percentunit',
      isStacked: true,
      queries: [{ promql: ofRun('run:rl_learner_idle:ratio5m'), legend: '{{cause}}' }],
    },
    {
      title: 'The actors wait',
      description:
        'Share of their time, mean: for tickets (the learner is the bottleneck: fewer actors), for a ' +
        'version, or to deliver.',
      unit: 'percentunit',
      isStacked: true,
      queries: [{ promql: ofRun('run:rl_actor_idle:ratio5m'), legend: '{{cause}}' }],
    },
    {
      title: 'Actors',
      description: 'Heard of in the last 10 seconds.',
      unit: 'none',
      queries: [{ promql: ofRun('rl_actors'), legend: 'actors' }],
    },
    {
      title: 'Groups under way',
      description:
        'That actors sample, could sample at once, and that the learner has issued tickets for.',
      unit: 'short',
      queries: [
        { promql: `sum by (run) (${ofRun('rl_actor_inflight')})`, legend: 'sampled' },
        { promql: `sum by (run) (${ofRun('rl_actor_limit')})`, legend: 'limit of the actors' },
        { promql: ofRun('rl_tickets_outstanding'), legend: 'tickets out' },
      ],
    },
    {
      title: 'Queues',
      description:
        'Messages, those included that somebody works on; without the groups that the learner has ' +
        'consumed, which stay in the queue until a checkpoint.',
      unit: 'short',
      queries: [
        {
          promql: ofRun('run:rl_stream_depth:max', 'stream!~"dead|scored"'),
          legend: '{{stream}}',
        },
        {
          promql:
            `clamp_min(${ofRun('run:rl_stream_depth:max', 'stream="scored"')}` +
            ` - on (run) max by (run) (${ofRun('rl_groups_awaiting_checkpoint')}), 0)`,
          legend: 'scored',
        },
      ],
    },
    {
      title: 'Groups that await a checkpoint',
      description:
        'Trained or dropped. A crash would bring them back, so they are kept until the next checkpoint; ' +
        'this falls to 0 with each and is no backlog.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_groups_awaiting_checkpoint'), legend: 'groups' }],
    },
    {
      title: 'Lag of the consumers',
      description: 'Waiting and worked on: what KEDA scales actors and reward service by.',
      unit: 'short',
      queries: [
        {
          promql: `${ofRun('rl_consumer_pending', other)} + ${ofRun('rl_consumer_ack_pending', other)}`,
          legend: '{{consumer}}',
        },
        { promql: ofRun('rl_consumer_pending', scored), legend: 'scored.train, not delivered yet' },
      ],
    },
    {
      title: 'Age of the oldest message',
      description: 'Of each queue.',
      unit: 's',
      queries: [{ promql: ofRun('run:rl_oldest_age_seconds:max'), legend: '{{stream}}' }],
    },
    {
      title: 'Publishing is held up',
      description: 'Seconds a second that a full queue or an absent server makes publishers wait.',
      unit: 'short',
      queries: [
        {
          promql: rateOrZero('broker_publish_blocked_seconds_total', ['queue', 'reason']),
          legend: '{{queue}} {{reason}}',
        },
      ],
    },
    {
      title: 'Sampling',
      description: 'Answers a second, all actors together.',
      unit: 'ops',
      queries: [{ promql: rate('rl_actor_rollouts_total', ['split']), legend: '{{split}}' }],
    },
    {
      title: 'Tokens',
      description: 'Sampled a second, all actors together, prompts not counted.',
      unit: 'ops',
      queries: [{ promql: rate('rl_actor_tokens_total', ['split']), legend: '{{split}}' }],
    },
    {
      title: 'Time to sample a group',
      description: 'From its first token to its last.',
      unit: 's',
      queries: [0.5, 0.95].map((q) => ({
        promql: quantile(q, 'rl_actor_group_seconds'),
        legend: `p${100 * q}`,
      })),
    },
    {
      title: 'Time to score a group',
      description: 'From taking it to knowing that its scores are stored; and the judging in it.',
      unit: 's',
      queries: [
        { promql: mean('reward_service_group_seconds'), legend: 'in all' },
        {
          promql: mean('reward_service_judging_seconds', [], 'source="stream"'),
          legend: 'judging',
        },
      ],
    },
    {
      title: 'Time to publish a version',
      description: 'By phase, and until the first token is drawn with it.',
      unit: 's',
      queries: [
        { promql: mean('rl_publish_seconds', ['phase']), legend: '{{phase}}' },
        { promql: mean('rl_actor_policy_adoption_seconds'), legend: 'adoption' },
        { promql: mean('rl_publish_to_first_token_seconds'), legend: 'first token' },
      ],
    },
    {
      title: 'The local backend',
      description: 'Seconds of work a second, by operation. Nothing where another backend trains.',
      unit: 'short',
      isStacked: true,
      queries: [
        {
          promql: rate('local_backend_operation_seconds_sum', ['operation']),
          legend: '{{operation}}',
        },
      ],
    },
  ],
};
