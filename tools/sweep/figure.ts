import {
  type Chart,
  type ChartPoint,
  chartMarkup,
  chartSize,
  chartStyle,
} from '../../cli/plot/chart.js';
import { mean } from '../../shared/base/statistics.js';
import { isIn } from './plan.js';
import type { RunResult } from './results.js';
import type { PanelSpec, Sweep } from './sweep-file.js';
import { isPercentage, type CellReport } from './table.js';
import { element, escaped } from '../../cli/plot/markup.js';

/** The panels of an experiment from its results so far. */
export function figureOf(
  sweep: Sweep,
  results: readonly RunResult[],
  cells: readonly CellReport[],
): Chart[] {
  return sweep.panels.map((spec) =>
    spec.kind === 'curve' ? curvePanel(sweep, spec, results) : endPanel(sweep, spec, cells),
  );
}

/** Curves over the samples trained: the mean of the seeds, with a band from the smallest to the largest. */
function curvePanel(
  sweep: Sweep,
  spec: Extract<PanelSpec, { kind: 'curve' }>,
  results: readonly RunResult[],
): Chart {
  const labels = labelsOf(sweep, spec.color);
  const series = labels.map((name, color) => {
    const part = { ...spec.where, [spec.color]: name };
    const curves = results
      .filter(({ choice }) => isIn(choice, part))
      .map((run) => curve(spec, run));
    return { name, color, points: together(curves) };
  });
  return {
    title: spec.title,
    x: { name: 'samples trained' },
    y: { name: spec.key, isPercentage: spec.from === 'eval' || spec.percent },
    legend: spec.color,
    series: series.filter(({ points }) => points.length > 0),
  };
}

/** The value of a measure for each label of an axis. */
function endPanel(
  sweep: Sweep,
  spec: Extract<PanelSpec, { kind: 'end' }>,
  cells: readonly CellReport[],
): Chart {
  const place = sweep.measures.findIndex(({ name }) => name === spec.measure);
  const labels = labelsOf(sweep, spec.x);
  const colors = spec.color === undefined ? [undefined] : labelsOf(sweep, spec.color);
  const series = colors.map((label, color) => {
    const part = { ...spec.where, ...(label !== undefined && { [spec.color!]: label }) };
    const points = labels.flatMap((x, i) => {
      const cell = cells.find(({ choice }) => isIn(choice, { ...part, [spec.x]: x }));
      const measured = cell?.measured[place];
      return measured === undefined
        ? []
        : { x: i, y: measured.mean, low: measured.low, high: measured.high };
    });
    return { name: label ?? spec.measure, color, points };
  });
  return {
    title: spec.title,
    x: { name: spec.x, labels },
    y: { name: spec.measure, isPercentage: isPercentage(sweep.measures[place]!) },
    legend: spec.color ?? '',
    series: series.filter(({ points }) => points.length > 0),
  };
}

function labelsOf({ axes }: Sweep, name: string): string[] {
  return axes.find((axis) => axis.name === name)!.values.map(({ label }) => label);
}

/** One run's values by the samples that it had trained on. */
function curve(
  { from, key, smooth }: Extract<PanelSpec, { kind: 'curve' }>,
  { evals, steps, samplesPerStep }: RunResult,
): Map<number, number> {
  if (from === 'eval') {
    const rates = evals.map((result) => {
      const rate = /^pass@(\d+)$/.exec(key)?.[1];
      const value = rate === undefined ? result[key as 'sampled' | 'greedy'] : result.passAt[rate];
      return [result.version * samplesPerStep, value ?? NaN] as const;
    });
    return new Map(rates.filter(([, value]) => Number.isFinite(value)));
  }
  const known = steps.filter((step) => step[key] !== undefined && step['step'] !== undefined);
  return new Map(
    known.map((step, i) => {
      const window = known.slice(Math.max(0, i - smooth + 1), i + 1);
      return [step['step']! * samplesPerStep, mean(window.map((other) => other[key]!))];
    }),
  );
}

/** The mean of the curves, at the places where all that still continue have a value. */
function together(curves: readonly ReadonlyMap<number, number>[]): ChartPoint[] {
  const places = [...new Set(curves.flatMap((values) => [...values.keys()]))].sort((a, b) => a - b);
  return places.flatMap((x) => {
    const values = curves.flatMap((values) => values.get(x) ?? []);
    const going = curves.filter((values) => Math.max(...values.keys()) >= x);
    if (values.length < going.length) return [];
    return { x, y: mean(values), low: Math.min(...values), high: Math.max(...values) };
  });
}

/** Charts side by side, two in a row, as one self-contained SVG. */
export function figureSvg(title: string, charts: readonly Chart[]): string {
  const columns = Math.min(2, Math.max(1, charts.length));
  const width = columns * chartSize.width;
  const height = Math.ceil(charts.length / columns) * chartSize.height;
  const groups = charts.map((chart, i) => {
    const x = (i % columns) * chartSize.width;
    const y = Math.floor(i / columns) * chartSize.height;
    return element('g', { transform: `translate(${x} ${y})` }, chartMarkup(chart));
  });
  const attributes = {
    xmlns: 'http://www.w3.org/2000/svg',
    viewBox: `0 0 ${width} ${height}`,
    class: 'chart',
    role: 'img',
    'aria-label': `${title}: ${charts.map((chart) => chart.title).join('; ')}`,
  };
  const name = element('title', {}, escaped(title));
  return element('svg', attributes, name + element('style', {}, chartStyle) + groups.join(''));
}
