import { mean, ofRun, quantile, rate, rateOrZero, type Question } from './question.js';

/** The messages of `scored.train` stay until a checkpoint, so only its undelivered ones count as lag. */
const [scored, other] = ['consumer="scored.train"', 'consumer!="scored.train"'];

/** Each pod may have an engine of its own at the same local address, so the address alone names none. */
const byEngine = 'run, instance, engine';

/** So many engines are drawn by themselves: a run may have hundreds. */
const shown = 5;

const requests = `max by (${byEngine}, state) (${ofRun('rl_actor_engine_requests')})`;
const cache = `max by (${byEngine}) (${ofRun('rl_actor_engine_kv_cache_usage')})`;
const slots = `sum by (${byEngine}) (${ofRun('rl_actor_engine_slots')})`;
const versions = `sum by (${byEngine}) (${ofRun('rl_actor_engine_versions')})`;

export const whoWaitsForWhom: Question = {
  uid: 'offbeat-waiting',
  title: 'Offbeat: who waits for whom?',
  description: 'What each service waits for, the queues between services, and the speed of each.',
  panels: [
    {
      title: 'Learner idle time',
      description:
        'Share of time in which the backend was idle: waiting for groups (add actors), for an older group ' +
        '(window), or for actors to load a version.',
      unit: 'percentunit',
      isStacked: true,
      queries: [{ promql: ofRun('run:rl_learner_idle:ratio5m'), legend: '{{cause}}' }],
    },
    {
      title: 'Actor idle time',
      description:
        'Mean share of time spent waiting for tickets (the learner is the bottleneck: remove actors), for a ' +
        'version, or to deliver.',
      unit: 'percentunit',
      isStacked: true,
      queries: [{ promql: ofRun('run:rl_actor_idle:ratio5m'), legend: '{{cause}}' }],
    },
    {
      title: 'Actors',
      description: 'Actors that reported in the last 10 seconds.',
      unit: 'none',
      queries: [{ promql: ofRun('rl_actors'), legend: 'actors' }],
    },
    {
      title: 'Groups in progress',
      description:
        'Groups that actors are sampling and their limit; groups that they could be sampling, by which KEDA scales them; ' +
        'groups with an outstanding ticket of the learner, and the limit of those that the backend has not computed.',
      unit: 'short',
      queries: [
        { promql: `sum by (run) (${ofRun('rl_actor_inflight')})`, legend: 'sampling' },
        { promql: `sum by (run) (${ofRun('rl_actor_limit')})`, legend: 'limit of actors' },
        { promql: ofRun('rl_ticket_demand'), legend: 'demand' },
        { promql: ofRun('rl_tickets_outstanding'), legend: 'outstanding tickets' },
        { promql: ofRun('rl_ticket_limit'), legend: 'limit of tickets' },
      ],
    },
    {
      title: 'Sequences at the engines',
      description:
        'Sequences that vLLM or SGLang decodes, and those that wait for room in its batch: at the five engines that have most ' +
        'of each, and the median of all. A queue that stays means more groups in flight than the engine can use.',
      unit: 'short',
      queries: [
        {
          promql: `topk by (run, state) (${shown}, ${requests}) or vector(0)`,
          legend: '{{instance}} {{engine}} {{state}}',
        },
        {
          promql: `quantile by (run, state) (0.5, ${requests}) or vector(0)`,
          legend: 'median {{state}}',
        },
      ],
    },
    {
      title: 'Cache of the engines',
      description:
        'Share of the cache of keys and values in use, at the five engines that use most, and the median of all. Near 1 the ' +
        'engine preempts sequences, and reads them again later.',
      unit: 'percentunit',
      queries: [
        {
          promql: `topk by (run) (${shown}, ${cache}) or vector(0)`,
          legend: '{{instance}} {{engine}}',
        },
        { promql: `quantile by (run) (0.5, ${cache}) or vector(0)`, legend: 'median' },
      ],
    },
    {
      title: 'Adapter slots of the engines',
      description:
        'Share of the slots whose policy version actors may sample with, at the five servers with the most taken, and the median ' +
        'of all. At 1 the next version waits until an older one is no longer used: start the server with more (vLLM: --max-loras).',
      unit: 'percentunit',
      queries: [
        {
          promql: `topk by (run) (${shown}, ${versions} / ${slots}) or vector(0)`,
          legend: '{{instance}} {{engine}}',
        },
        {
          promql: `quantile by (run) (0.5, ${versions} / ${slots}) or vector(0)`,
          legend: 'median',
        },
      ],
    },
    {
      title: 'Queues',
      description:
        'Messages, including those in processing. The groups that the learner has consumed are excluded: ' +
        'they stay in the queue until a checkpoint.',
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
        'Trained or dropped groups. A crash requires them again, so they are kept until the next checkpoint; ' +
        'the number falls to 0 at each and is not a backlog.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_groups_awaiting_checkpoint'), legend: 'groups' }],
    },
    {
      title: 'Consumer lag',
      description:
        'Waiting and unacknowledged messages, by which KEDA scales the reward service, and with the demand for tickets the actors.',
      unit: 'short',
      queries: [
        {
          promql: `${ofRun('rl_consumer_pending', other)} + ${ofRun('rl_consumer_ack_pending', other)}`,
          legend: '{{consumer}}',
        },
        { promql: ofRun('rl_consumer_pending', scored), legend: 'scored.train, undelivered' },
      ],
    },
    {
      title: 'Age of the oldest message',
      description: 'Age by queue.',
      unit: 's',
      queries: [{ promql: ofRun('run:rl_oldest_age_seconds:max'), legend: '{{stream}}' }],
    },
    {
      title: 'Blocked publishers',
      description:
        'Seconds per second that publishers wait because of a full queue or an absent server.',
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
      description: 'Answers per second of all actors.',
      unit: 'ops',
      queries: [{ promql: rate('rl_actor_rollouts_total', ['split']), legend: '{{split}}' }],
    },
    {
      title: 'Tokens',
      description: 'Tokens per second sampled by all actors, without prompts.',
      unit: 'ops',
      queries: [{ promql: rate('rl_actor_tokens_total', ['split']), legend: '{{split}}' }],
    },
    {
      title: 'Tokens by use',
      description:
        'Tokens of answers since the run began. Those that are sampled and not trained on are the price of being ' +
        'off-policy; the reasons are below.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_run_tokens', 'use!="sampled"'), legend: '{{use}}' }],
    },
    {
      title: 'Tokens wasted by reason',
      description: 'Sampled tokens since the run began that no step will train on.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_run_tokens_wasted'), legend: '{{reason}}' }],
    },
    {
      title: 'Machines held',
      description:
        'Time since the run began, summed over the machines of a role, and over their GPUs.',
      unit: 's',
      queries: [
        { promql: ofRun('rl_held_seconds'), legend: '{{role}}' },
        { promql: `${ofRun('rl_gpu_seconds')} > 0`, legend: '{{role}}, GPUs' },
      ],
    },
    {
      title: 'Money spent',
      description: 'Since the run began, by the --price flags of the learner. Empty without them.',
      unit: 'short',
      queries: [{ promql: ofRun('rl_cost'), legend: '{{part}}' }],
    },
    {
      title: 'Time to sample a group',
      description: 'Time from the first token to the last.',
      unit: 's',
      queries: [0.5, 0.95].map((q) => ({
        promql: quantile(q, 'rl_actor_group_seconds'),
        legend: `p${100 * q}`,
      })),
    },
    {
      title: 'Time to score a group',
      description:
        'Time from delivery of the group to confirmed storage of its scores, and the judging part of it.',
      unit: 's',
      queries: [
        { promql: mean('reward_service_group_seconds'), legend: 'total' },
        {
          promql: mean('reward_service_judging_seconds', [], 'source="stream"'),
          legend: 'judging',
        },
      ],
    },
    {
      title: 'Time to publish a version',
      description: 'Time by phase, until actors load the version, and until its first token.',
      unit: 's',
      queries: [
        { promql: mean('rl_publish_seconds', ['phase']), legend: '{{phase}}' },
        { promql: mean('rl_actor_policy_adoption_seconds'), legend: 'adoption' },
        { promql: mean('rl_publish_to_first_token_seconds'), legend: 'first token' },
      ],
    },
    {
      title: 'The local backend',
      description: 'Seconds of work per second, by operation. Empty when another backend trains.',
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
