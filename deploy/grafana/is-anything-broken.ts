import { mean, ofRun, rate, rateOrZero, type Question } from './question.js';

export const isAnythingBroken: Question = {
  uid: 'offbeat-broken',
  title: 'Offbeat: is anything broken?',
  description: 'What should be 0, and whether the processes are well.',
  panels: [
    {
      title: 'Alerts',
      description: 'Firing, by name. docs/monitoring.md says what to do about each.',
      unit: 'none',
      queries: [
        {
          promql: `sum by (alertname) (${ofRun('ALERTS', 'alertstate="firing"', 'alertname=~"Offbeat.*"')}) or vector(0)`,
          legend: '{{alertname}}',
        },
      ],
    },
    {
      title: 'Processes that can be scraped',
      description: 'By service.',
      unit: 'none',
      queries: [
        {
          promql: `sum by (run, service) (${ofRun('up', 'job=~"offbeat.*"')})`,
          legend: '{{service}}',
        },
      ],
    },
    {
      title: 'Dead letters',
      description: 'Messages put aside, since the run began.',
      unit: 'none',
      queries: [
        { promql: ofRun('run:rl_stream_depth:max', 'stream="dead"'), legend: 'dead letters' },
      ],
    },
    {
      title: 'Actors in quarantine',
      description: 'Whose logprobs are not those of the policy: their groups are refused.',
      unit: 'none',
      queries: [{ promql: ofRun('rl_actors_quarantined'), legend: 'actors' }],
    },
    {
      title: 'Gap of the logprobs',
      description: 'Between what actors claim and what training computes, nats a token, mean.',
      unit: 'short',
      queries: [{ promql: mean('rl_audit_gap_nats'), legend: 'gap' }],
    },
    {
      title: 'Groups not trained on',
      description: 'A second, by where and why. Skipped ones without variance are ordinary.',
      unit: 'ops',
      queries: [
        {
          promql: rateOrZero('rl_groups_dropped_total', ['stage', 'reason']),
          legend: '{{stage}} {{reason}}',
        },
      ],
    },
    {
      title: 'Tokens sampled for nothing',
      description: 'A second, by why.',
      unit: 'ops',
      queries: [{ promql: rateOrZero('rl_tokens_wasted_total', ['reason']), legend: '{{reason}}' }],
    },
    {
      title: 'Groups that do not answer their ticket',
      description:
        'Refused by the reward service, a second, by why. An actor of another run or build sends them.',
      unit: 'ops',
      queries: [
        {
          promql: rateOrZero('reward_service_refused_groups_total', ['reason']),
          legend: '{{reason}}',
        },
      ],
    },
    {
      title: 'Messages by what became of them',
      description: 'A second, by who took them. Returned ones are tried again.',
      unit: 'ops',
      queries: [
        {
          promql: rate('broker_messages_settled_total', ['stage', 'outcome']),
          legend: '{{stage}} {{outcome}}',
        },
        {
          promql: rateOrZero('broker_messages_redelivered_total', ['stage']),
          legend: '{{stage}} redelivered',
        },
      ],
    },
    {
      title: 'Recoveries',
      description: 'Of the learner from its checkpoint, an hour, by reason.',
      unit: 'short',
      queries: [
        {
          promql: `3600 * ${rate('rl_learner_recoveries_total', ['reason'])} or vector(0)`,
          legend: '{{reason}}',
        },
      ],
    },
    {
      title: 'Steps out of bounds',
      description: 'In a row; --stop-patience of them end the run.',
      unit: 'none',
      queries: [{ promql: ofRun('rl_unhealthy_steps'), legend: 'steps' }],
    },
    {
      title: 'Evaluations',
      description:
        'Since the learner started, by how they ended, and by how many versions the last was late.',
      unit: 'none',
      queries: [
        {
          promql: `sum by (run, outcome) (${ofRun('rl_evaluations_total')})`,
          legend: '{{outcome}}',
        },
        { promql: ofRun('rl_eval_lag_steps'), legend: 'versions late' },
      ],
    },
    {
      title: 'Event loops',
      description:
        'How late they are, 99 % of the time. Above a second leases and heartbeats suffer.',
      unit: 's',
      queries: [
        {
          promql: `max by (run, service) (${ofRun('nodejs_eventloop_lag_p99_seconds')})`,
          legend: '{{service}}',
        },
      ],
    },
    {
      title: 'Memory',
      description: 'Resident, the largest process of each service.',
      unit: 'bytes',
      queries: [
        {
          promql: `max by (run, service) (${ofRun('process_resident_memory_bytes')})`,
          legend: '{{service}}',
        },
      ],
    },
    {
      title: 'Processor time',
      description: 'Cores, summed over the processes of each service.',
      unit: 'short',
      queries: [{ promql: rate('process_cpu_seconds_total', ['service']), legend: '{{service}}' }],
    },
    {
      title: 'HTTP of the local backend',
      description: 'Answers a second that are no success.',
      unit: 'ops',
      queries: [
        {
          promql: `${rate('local_backend_requests_total', ['route', 'status'], 'status!~"2.."')} or vector(0)`,
          legend: '{{route}} {{status}}',
        },
      ],
    },
  ],
};
