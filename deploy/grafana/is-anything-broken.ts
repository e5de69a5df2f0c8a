import { mean, ofRun, rate, rateOrZero, type Question } from './question.js';

export const isAnythingBroken: Question = {
  uid: 'offbeat-broken',
  title: 'Offbeat: is anything broken?',
  description: 'Counts that should be 0, and the health of the processes.',
  panels: [
    {
      title: 'Alerts',
      description:
        'Firing alerts by name, those of no run included. docs/monitoring.md says how to handle each.',
      unit: 'none',
      queries: [
        {
          promql: `sum by (alertname) (ALERTS{run=~"$run|", alertstate="firing", alertname=~"Offbeat.*"}) or vector(0)`,
          legend: '{{alertname}}',
        },
      ],
    },
    {
      title: 'Processes that can be scraped',
      description: 'Number of scraped processes, by service.',
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
      description: 'Messages in the dead-letter stream since the run began.',
      unit: 'none',
      queries: [
        { promql: ofRun('run:rl_stream_depth:max', 'stream="dead"'), legend: 'dead letters' },
      ],
    },
    {
      title: 'Actors in quarantine',
      description: 'Actors whose logprobs do not match the policy. Their groups are refused.',
      unit: 'none',
      queries: [{ promql: ofRun('rl_actors_quarantined'), legend: 'actors' }],
    },
    {
      title: 'Engines out of use',
      description:
        'Servers of vLLM or SGLang that an actor does not sample with, and how often each went out of use per hour, by why.',
      unit: 'none',
      queries: [
        {
          promql: `count by (run, engine) (${ofRun('rl_actor_engine_up')} == 0) or vector(0)`,
          legend: '{{engine}}',
        },
        {
          promql: `3600 * ${rate('rl_actor_engine_outages_total', ['engine', 'outage'])} or vector(0)`,
          legend: '{{engine}} {{outage}}',
        },
      ],
    },
    {
      title: 'Logprob gap',
      description:
        'Mean difference between the logprobs from actors and from training, in nats per token.',
      unit: 'short',
      queries: [{ promql: mean('rl_audit_gap_nats'), legend: 'gap' }],
    },
    {
      title: 'Groups not trained on',
      description:
        'Groups per second, by stage and reason. Skipping groups without variance is normal.',
      unit: 'ops',
      queries: [
        {
          promql: rateOrZero('rl_groups_dropped_total', ['stage', 'reason']),
          legend: '{{stage}} {{reason}}',
        },
      ],
    },
    {
      title: 'Wasted tokens',
      description: 'Sampled tokens per second that are not trained on, by reason.',
      unit: 'ops',
      queries: [{ promql: rateOrZero('rl_tokens_wasted_total', ['reason']), legend: '{{reason}}' }],
    },
    {
      title: 'Groups that do not match their ticket',
      description:
        'Groups per second that the reward service refuses, by reason. They come from an actor of another run or build.',
      unit: 'ops',
      queries: [
        {
          promql: rateOrZero('reward_service_refused_groups_total', ['reason']),
          legend: '{{reason}}',
        },
      ],
    },
    {
      title: 'Messages by outcome',
      description: 'Messages per second, by consumer stage. Returned messages are redelivered.',
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
      description: 'Recoveries of the learner from its checkpoint per hour, by reason.',
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
      description: 'Consecutive steps; the run ends after --stop-patience of them.',
      unit: 'none',
      queries: [{ promql: ofRun('rl_unhealthy_steps'), legend: 'steps' }],
    },
    {
      title: 'Evaluations',
      description:
        'Evaluations since the learner started, by outcome, and the lag of the last one in versions.',
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
      title: 'Event loop lag',
      description:
        'Lag at the 99th percentile. Above one second, leases and heartbeats are delayed.',
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
      description: 'Resident memory of the largest process of each service.',
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
      title: 'HTTP errors of the local backend',
      description: 'Unsuccessful responses per second.',
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
