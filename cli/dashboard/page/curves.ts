import { mean } from '../../../shared/base/statistics.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import type { Chart, ChartPoint } from '../../plot/chart.js';
import type { History } from '../run/history.js';

/** A chart of the page and the question that it answers. */
export interface Curve extends Chart {
  readonly id: string;
  readonly question: keyof typeof questions;
}

/** The questions that the charts answer, in the order of the page. */
export const questions = {
  learning: 'Is it learning?',
  'off-policy': 'Is it off-policy?',
  waiting: 'Who waits for whom?',
  cost: 'What does it cost?',
} as const;

/** More points than this are averaged, and the band shows their range. */
const mostPoints = 120;

type Metrics = Readonly<Record<string, number>>;

interface Line {
  readonly name: string;
  readonly pointsIn: (history: History, config: RunConfig | undefined) => ChartPoint[];
}

/** A line with a point for each step whose metrics have the value. */
const ofSteps = (name: string, value: (metrics: Metrics) => number | undefined): Line => ({
  name,
  pointsIn: (history) => pointsOf(history, value),
});

const metric = (name: string, key: string) => ofSteps(name, (metrics) => metrics[key]);

const hours = (name: string, key: string) =>
  ofSteps(name, ({ [key]: seconds }) => (seconds === undefined ? undefined : seconds / 3_600));

const ofEvals = (name: string, rate: 'sampled' | 'greedy'): Line => ({
  name,
  pointsIn: (history) => evalPoints(history, rate),
});

/** Whether a step has shares of new and of rehearsed problems, so that one of both together would mislead. */
const hasTwoKinds = (metrics: Metrics) =>
  'env/new/correct' in metrics || 'env/rehearsal/correct' in metrics;

/** A chart of any run. */
interface Plot extends Pick<Curve, 'id' | 'question' | 'title'> {
  readonly lines: readonly Line[];
  readonly isPercentage?: boolean;
}

const solved: Plot = {
  id: 'solved',
  question: 'learning',
  title: 'Solved exactly',
  lines: [
    ofSteps('training', (metrics) =>
      hasTwoKinds(metrics) ? undefined : metrics['env/all/correct'],
    ),
    metric('training, new', 'env/new/correct'),
    metric('training, rehearsal', 'env/rehearsal/correct'),
    ofEvals('held-out', 'sampled'),
    ofEvals('greedily', 'greedy'),
  ],
  isPercentage: true,
};

const costs: readonly Plot[] = [
  {
    id: 'held',
    question: 'cost',
    title: 'Machines held, hours',
    lines: [hours('sampler', 'held_seconds/sampler'), hours('trainer', 'held_seconds/trainer')],
  },
  { id: 'spent', question: 'cost', title: 'Money spent', lines: [metric('all', 'cost/total')] },
];

const plotsOnExamples: readonly Plot[] = [
  {
    id: 'nll',
    question: 'learning',
    title: '-logprob of the examples, nats per token',
    lines: [metric('training', 'sft/nll'), metric('held-out', 'sft/held_out_nll')],
  },
  solved,
  {
    id: 'rate',
    question: 'learning',
    title: 'Learning rate',
    lines: [metric('learning rate', 'learning_rate')],
  },
  {
    id: 'speed',
    question: 'waiting',
    title: 'Trained tokens a second',
    lines: [ofSteps('trained', (metrics) => ratio(metrics['sft/tokens'], metrics['seconds']))],
  },
  ...costs,
];

const plotsOnRollouts: readonly Plot[] = [
  {
    id: 'reward',
    question: 'learning',
    title: 'Reward',
    lines: [metric('mean of all answers', 'env/all/reward/total')],
  },
  solved,
  {
    id: 'entropy',
    question: 'learning',
    title: 'Entropy, nats per token',
    lines: [metric('of all answers', 'entropy')],
  },
  {
    id: 'staleness',
    question: 'off-policy',
    title: 'Staleness, versions',
    lines: [
      metric('mean', 'staleness/mean'),
      metric('max', 'staleness/max'),
      { name: 'bound', pointsIn: boundPoints },
    ],
  },
  {
    id: 'kl',
    question: 'off-policy',
    title: 'KL from sampler to learner, nats',
    lines: [metric('v1', 'kl_sample_train_v1'), metric('v2', 'kl_sample_train_v2')],
  },
  {
    id: 'ess',
    question: 'off-policy',
    title: 'Effective sample size',
    lines: [metric('share of the tokens', 'ess_ratio')],
    isPercentage: true,
  },
  {
    id: 'speed',
    question: 'waiting',
    title: 'Rollouts a second',
    lines: [ofSteps('scored', (metrics) => ratio(metrics['scored/rollouts'], metrics['seconds']))],
  },
  {
    id: 'idle',
    question: 'waiting',
    title: 'Learner idle',
    lines: [
      ofSteps('share of the step', (metrics) => ratio(metrics['idle_seconds'], metrics['seconds'])),
    ],
    isPercentage: true,
  },
  {
    id: 'queues',
    question: 'waiting',
    title: 'In the queues, groups',
    lines: [
      metric('tickets', 'stream_depth/tickets'),
      metric('rollouts', 'stream_depth/rollouts'),
      ofSteps('scored', queued),
    ],
  },
  {
    id: 'tokens',
    question: 'cost',
    title: 'Tokens of answers so far',
    lines: [
      metric('trained', 'run_tokens/trained'),
      metric('wasted', 'run_tokens/wasted'),
      metric('evaluated', 'run_tokens/evaluated'),
      metric('in flight', 'run_tokens/in_flight'),
    ],
  },
  ...costs,
];

/** Every chart of a run on rollouts, or on examples, also those without points yet, so that the layout does not change. */
export function curvesOf(history: History, config: RunConfig | undefined): Curve[] {
  const plots = config?.trainOn === 'examples' ? plotsOnExamples : plotsOnRollouts;
  return plots.map(({ lines, isPercentage = false, ...plot }) => ({
    ...plot,
    x: { name: 'step' },
    y: { name: '', isPercentage },
    legend: '',
    series: lines
      .map(({ name, pointsIn }, color) => ({ name, points: pointsIn(history, config), color }))
      .filter(({ points }) => points.length > 0),
  }));
}

/**
 * Means of neighbors if there are too many points. The newest point is unchanged, since the legend
 * and the table show it, as the headline does.
 *
 * @param points rising in x.
 */
function thinned(points: readonly ChartPoint[]): ChartPoint[] {
  const size = Math.ceil(points.length / mostPoints);
  if (size <= 1) return [...points];
  const earlier = points.slice(0, -1);
  const count = Math.ceil(earlier.length / size);
  const means = Array.from({ length: count }, (_, i) => {
    const part = earlier.slice(i * size, (i + 1) * size);
    const values = part.map(({ y }) => y);
    return {
      x: part.at(-1)!.x,
      y: mean(values),
      low: Math.min(...values),
      high: Math.max(...values),
    };
  });
  return [...means, points.at(-1)!];
}

function pointsOf(
  { steps }: History,
  value: (metrics: Metrics) => number | undefined,
): ChartPoint[] {
  const points = steps.flatMap(({ step, metrics }) => {
    const y = value(metrics);
    return y === undefined ? [] : { x: step, y };
  });
  return thinned(points);
}

/** By step, like the other lines: a resumed run has more versions than steps. */
function evalPoints({ steps, evals }: History, rate: 'sampled' | 'greedy'): ChartPoint[] {
  const stepOf = (version: number) => steps.findLast((step) => step.version <= version)?.step ?? 0;
  return thinned(evals.map((result) => ({ x: stepOf(result.version), y: result[rate] })));
}

/** The bound on staleness, as a line: where it adapts itself, that of each step. */
function boundPoints(history: History, config: RunConfig | undefined): ChartPoint[] {
  if (config?.isBoundAdaptive === true) {
    return pointsOf(history, (metrics) => metrics['tickets/bound']);
  }
  const { steps } = history;
  const [first, last] = [steps[0], steps.at(-1)];
  if (config === undefined || first === undefined || last === undefined) return [];
  return [first, last].map(({ step }) => ({ x: step, y: config.maxStepsOffPolicy }));
}

/** Scored groups without the consumed ones that only await a checkpoint: no service has to process those. */
function queued(metrics: Metrics): number | undefined {
  const depth = metrics['stream_depth/scored'];
  const kept = metrics['groups_awaiting_checkpoint'] ?? 0;
  return depth === undefined ? undefined : Math.max(0, depth - kept);
}

function ratio(part: number | undefined, whole: number | undefined): number | undefined {
  return part === undefined || whole === undefined || whole <= 0 ? undefined : part / whole;
}
