import type { Estimate } from './bootstrap.js';
import type { Compared } from './compare.js';
import type { Measured } from './measures.js';
import type { Choice, Measure } from './sweep-file.js';

/** A table as text: the first row is its head. */
export interface Table {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** The runs and measures of one cell. */
export interface CellReport {
  readonly choice: Choice;
  readonly runs: number; // that are finished
  readonly planned: number;
  readonly ends: readonly string[]; // why runs ended early
  readonly minutes: number; // a run, on average
  readonly measured: readonly (Measured | undefined)[]; // in the order of the measures
}

/** One row per cell. */
export function cellTable(measures: readonly Measure[], cells: readonly CellReport[]): Table {
  const axes = Object.keys(cells[0]?.choice ?? {});
  return {
    head: [...axes, 'runs', ...measures.map(({ name }) => name), 'minutes a run'],
    rows: cells.map(({ choice, runs, planned, ends, measured, minutes }) => [
      ...Object.values(choice),
      [runs === planned ? String(runs) : `${runs} of ${planned}`, ...ends].join('; '),
      ...measures.map((measure, i) => shownMeasure(measure, measured[i])),
      runs === 0 ? '' : minutes.toFixed(1),
    ]),
  };
}

/** One row per comparison. Differences are in percentage points. */
export function comparisonTable(compared: readonly Compared[]): Table {
  const axes = Object.keys(compared[0]?.choice ?? {});
  return {
    head: [...axes, 'compared with', 'pairs of runs', 'difference', 'with other seeds', 'verdict'],
    rows: compared.map(({ choice, baseline, pairs, byProblems, bySeeds, verdict }) => [
      ...Object.values(choice),
      axes
        .filter((axis) => baseline[axis] !== choice[axis])
        .map((axis) => `${axis} ${baseline[axis]!}`)
        .join(', '),
      String(pairs),
      shownPoints(byProblems),
      bySeeds === undefined ? 'unknown with one seed' : shownPoints(bySeeds),
      verdict,
    ]),
  };
}

/** A table in GitHub's Markdown. */
export function markdownOf({ head, rows }: Table): string {
  const cells = [head, ...rows].map((row) => row.map((text) => text.replaceAll('|', '\\|')));
  const widths = head.map((_, i) => Math.max(3, ...cells.map((row) => row[i]!.length)));
  const line = (row: readonly string[]) =>
    `| ${row.map((text, i) => text.padEnd(widths[i]!)).join(' | ')} |`;
  const rule = line(widths.map((width) => '-'.repeat(width)));
  const [first, ...others] = cells.map(line);
  return [first, rule, ...others].join('\n');
}

export function isPercentage(measure: Measure): boolean {
  return measure.from === 'eval' || measure.percent;
}

export function shownMeasure(measure: Measure, measured: Measured | undefined): string {
  if (measured === undefined) return '';
  const { mean, low, high, kind, overSeeds, runs } = measured;
  const number = isPercentage(measure) ? (value: number) => (100 * value).toFixed(1) : significant;
  const unit = isPercentage(measure) ? ' %' : '';
  if (kind === 'range' && runs === 1) return `${number(mean)}${unit}`;
  const seeds = overSeeds === undefined ? '' : `; ± ${number(overSeeds)} by seeds`;
  return `${number(mean)}${unit} (${number(low)} to ${number(high)}${seeds})`;
}

/** A difference of shares in points, with its interval. */
export function shownPoints(estimate: Estimate): string {
  return `${points(estimate.mean)} (${shownInterval(estimate)})`;
}

/** The interval of a difference, in points. */
export function shownInterval({ low, high }: Pick<Estimate, 'low' | 'high'>): string {
  return `${points(low)} to ${points(high)}`;
}

function points(value: number): string {
  return `${value < 0 ? '−' : '+'}${Math.abs(100 * value).toFixed(1)}`;
}

/** Three significant digits, without an exponent for numbers of usual size. */
export function significant(value: number): string {
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e6)) return value.toExponential(1);
  return String(Number(value.toPrecision(3)));
}
