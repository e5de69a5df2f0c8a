import { mean } from '../../../shared/base/statistics.js';
import type { RunConfig } from '../../../shared/run/run-config.js';
import { type Chart, type ChartPoint, type ChartSeries, chartMarkup } from '../../plot/chart.js';
import type { History } from '../run/history.js';
import { element, escaped } from '../../plot/markup.js';
import { figure, percent } from './format.js';

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

interface Line {
  readonly name: string;
  readonly of: (metrics: Readonly<Record<string, number>>) => number | undefined;
}

const hours = (name: string, key: string): Line => ({
  name,
  of: ({ [key]: seconds }) => (seconds === undefined ? undefined : seconds / 3_600),
});

const metric = (name: string, key: string): Line => ({ name, of: (metrics) => metrics[key] });

/** Whether a step has shares of new and of rehearsed problems, so that one of both together would mislead. */
const hasTwoKinds = (metrics: Readonly<Record<string, number>>) =>
  'env/new/correct' in metrics || 'env/rehearsal/correct' in metrics;

/** Every chart of a run on rollouts, or on examples, also those without points yet, so that the layout does not change. */
export function curvesOf(history: History, config: RunConfig | undefined): Curve[] {
  const curve = (
    id: string,
    question: Curve['question'],
    title: string,
    lines: readonly Line[],
    more: readonly Omit<ChartSeries, 'color'>[] = [],
    isPercentage = false,
  ): Curve => {
    const drawn = lines.map(({ name, of }) => ({ name, points: pointsOf(history, of) }));
    return {
      id,
      question,
      title,
      x: { name: 'step' },
      y: { name: '', isPercentage },
      legend: '',
      series: [...drawn, ...more]
        .map((series, color) => ({ ...series, color }))
        .filter(({ points }) => points.length > 0),
    };
  };
  const solved = curve(
    'solved',
    'learning',
    'Solved exactly',
    [
      {
        name: 'training',
        of: (metrics) => (hasTwoKinds(metrics) ? undefined : metrics['env/all/correct']),
      },
      metric('training, new', 'env/new/correct'),
      metric('training, rehearsal', 'env/rehearsal/correct'),
    ],
    [
      { name: 'held-out', points: evalPoints(history, 'sampled') },
      { name: 'greedily', points: evalPoints(history, 'greedy') },
    ],
    true,
  );
  if (config?.trainOn === 'examples') {
    return [
      curve('nll', 'learning', '-logprob of the examples, nats per token', [
        metric('training', 'sft/nll'),
        metric('held-out', 'sft/held_out_nll'),
      ]),
      solved,
      curve('rate', 'learning', 'Learning rate', [metric('learning rate', 'learning_rate')]),
      curve('speed', 'waiting', 'Trained tokens a second', [
        { name: 'trained', of: (metrics) => ratio(metrics['sft/tokens'], metrics['seconds']) },
      ]),
    ];
  }
  return [
    curve('reward', 'learning', 'Reward', [metric('mean of all answers', 'env/all/reward/total')]),
    solved,
    curve('entropy', 'learning', 'Entropy, nats per token', [metric('of all answers', 'entropy')]),
    curve(
      'staleness',
      'off-policy',
      'Staleness, versions',
      [metric('mean', 'staleness/mean'), metric('max', 'staleness/max')],
      bound(history, config),
    ),
    curve('kl', 'off-policy', 'KL from sampler to learner, nats', [
      metric('v1', 'kl_sample_train_v1'),
      metric('v2', 'kl_sample_train_v2'),
    ]),
    curve(
      'ess',
      'off-policy',
      'Effective sample size',
      [metric('share of the tokens', 'ess_ratio')],
      [],
      true,
    ),
    curve('speed', 'waiting', 'Rollouts a second', [
      { name: 'scored', of: (metrics) => ratio(metrics['scored/rollouts'], metrics['seconds']) },
    ]),
    curve(
      'idle',
      'waiting',
      'Learner idle',
      [
        {
          name: 'share of the step',
          of: (metrics) => ratio(metrics['idle_seconds'], metrics['seconds']),
        },
      ],
      [],
      true,
    ),
    curve('queues', 'waiting', 'In the queues, groups', [
      metric('tickets', 'stream_depth/tickets'),
      metric('rollouts', 'stream_depth/rollouts'),
      // Without consumed groups that only await a checkpoint: no service has to process them.
      { name: 'scored', of: (metrics) => queued(metrics) },
    ]),
    curve('tokens', 'cost', 'Tokens of answers so far', [
      metric('trained', 'run_tokens/trained'),
      metric('wasted', 'run_tokens/wasted'),
      metric('evaluated', 'run_tokens/evaluated'),
      metric('in flight', 'run_tokens/in_flight'),
    ]),
    curve('held', 'cost', 'Machines held, hours', [
      hours('sampler', 'held_seconds/sampler'),
      hours('trainer', 'held_seconds/trainer'),
    ]),
    curve('spent', 'cost', 'Money spent', [metric('all', 'cost/total')]),
  ];
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

function pointsOf({ steps }: History, of: Line['of']): ChartPoint[] {
  const points = steps.flatMap(({ step, metrics }) => {
    const y = of(metrics);
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
function bound(history: History, config: RunConfig | undefined): Omit<ChartSeries, 'color'>[] {
  if (config?.isBoundAdaptive === true) {
    return [{ name: 'bound', points: pointsOf(history, (metrics) => metrics['tickets/bound']) }];
  }
  const { steps } = history;
  const [first, last] = [steps[0], steps.at(-1)];
  if (config === undefined || first === undefined || last === undefined) return [];
  const points = [first, last].map(({ step }) => ({ x: step, y: config.maxStepsOffPolicy }));
  return [{ name: 'bound', points }];
}

function queued(metrics: Readonly<Record<string, number>>): number | undefined {
  const depth = metrics['stream_depth/scored'];
  const kept = metrics['groups_awaiting_checkpoint'] ?? 0;
  return depth === undefined ? undefined : Math.max(0, depth - kept);
}

function ratio(part: number | undefined, whole: number | undefined): number | undefined {
  return part === undefined || whole === undefined || whole <= 0 ? undefined : part / whole;
}

const size = { width: 400, height: 230, hasWords: false };

/** Rows of the table of a plot: enough to show the curve. */
const tableRows = 20;

/** A plot with its heading, the names and newest values of its lines, and its table. */
export function plotMarkup(curve: Curve): string {
  const { id, title, series } = curve;
  const says = series.map(({ name, points }) => {
    const [first, last] = [points[0]!, points.at(-1)!];
    const [from, to] = [first.y, last.y].map((y) => shown(curve, y));
    return `${name}: ${from} at step ${first.x}, ${to} at step ${last.x}`;
  });
  const picture = element(
    'svg',
    {
      viewBox: `0 0 ${size.width} ${size.height}`,
      class: 'chart',
      role: 'img',
      'aria-label': `${title}. ${says.length === 0 ? 'No step yet' : says.join('; ')}.`,
    },
    chartMarkup(curve, size),
  );
  const legend = series.map(({ name, color, points }) =>
    element('li', {}, swatch(color) + escaped(name) + value(shown(curve, points.at(-1)!.y))),
  );
  return [
    element('h3', { id: `${id}-title` }, escaped(title)),
    element('ul', { class: 'legend' }, legend.join('')),
    picture,
    table(curve),
  ].join('');
}

function shown({ y: { isPercentage } }: Curve, y: number): string {
  return isPercentage ? percent(y) : figure(y);
}

function value(content: string): string {
  return ` ${element('span', { class: 'value' }, content)}`;
}

/** A sample of the line, with its color and dashes. */
function swatch(color: number): string {
  const line = element('line', { x1: 0, x2: 22, y1: 5, y2: 5, class: `line c${color}` });
  return element(
    'svg',
    { viewBox: '0 0 22 10', class: 'chart swatch', 'aria-hidden': 'true' },
    line,
  );
}

function table(curve: Curve): string {
  const { title, series } = curve;
  const places = [...new Set(series.flatMap(({ points }) => points.map(({ x }) => x)))];
  const rows = everyFew(
    places.sort((a, b) => a - b),
    tableRows,
  ).map((x) => {
    const cells = series.map(({ points }) => {
      const point = points.find((each) => each.x === x);
      return element('td', {}, point === undefined ? '' : shown(curve, point.y));
    });
    return element('tr', {}, element('th', { scope: 'row' }, String(x)) + cells.join(''));
  });
  const names = ['step', ...series.map(({ name }) => name)];
  const head = names.map((name) => element('th', { scope: 'col' }, escaped(name))).join('');
  const inner =
    element('caption', {}, escaped(title)) +
    element('thead', {}, element('tr', {}, head)) +
    element('tbody', {}, rows.join(''));
  const summary = element('summary', {}, 'Figures');
  const scrolling = element(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `${title}, figures` },
    element('table', {}, inner),
  );
  return element('details', {}, summary + scrolling);
}

/** At most `count` of them, evenly spaced, the last one included. */
function everyFew<T>(items: readonly T[], most: number): T[] {
  const step = Math.ceil(items.length / most);
  return items.filter((_, i) => (items.length - 1 - i) % Math.max(1, step) === 0);
}
