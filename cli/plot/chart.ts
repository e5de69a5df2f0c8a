import { element, text } from './markup.js';

export interface ChartPoint {
  readonly x: number; // a value, or the place of a label
  readonly y: number;
  readonly low?: number;
  readonly high?: number;
}

export interface ChartSeries {
  readonly name: string;
  readonly color: number;
  readonly points: readonly ChartPoint[]; // rising in x
}

/** The data of a chart, without its layout. */
export interface Chart {
  readonly title: string;
  readonly x: { readonly name: string; readonly labels?: readonly string[] };
  readonly y: { readonly name: string; readonly isPercentage: boolean };
  readonly legend: string; // what the names of the series are values of
  readonly series: readonly ChartSeries[];
}

export const chartSize = { width: 540, height: 320 };

/** How large a chart is, and whether its title and its legend are drawn or stand beside it in the page. */
export interface ChartLayout {
  readonly width: number;
  readonly height: number;
  readonly hasWords: boolean;
}

/** Where the axes lie. */
interface Plot {
  readonly left: number;
  readonly right: number;
  readonly top: number;
  readonly bottom: number;
}

function plotIn({ width, height, hasWords }: ChartLayout): Plot {
  const margin = hasWords
    ? { left: 58, right: 128, top: 34, bottom: 44 }
    : { left: 46, right: 12, top: 8, bottom: 40 };
  return {
    left: margin.left,
    right: width - margin.right,
    top: margin.top,
    bottom: height - margin.bottom,
  };
}

/**
 * One chart as a group of SVG elements, its upper left corner at 0, 0: lines with bands over a continuous axis,
 * dots with whiskers over labels. Colors are classes, so that the page can style them.
 */
export function chartMarkup(
  chart: Chart,
  layout: ChartLayout = { ...chartSize, hasWords: true },
): string {
  const plot = plotIn(layout);
  const points = chart.series.flatMap((series) => series.points);
  const title = layout.hasWords ? text(chart.title, { x: plot.left, y: 18, class: 'title' }) : '';
  if (points.length === 0) {
    const middle = { x: (plot.left + plot.right) / 2, y: layout.height / 2 };
    return title + text('no result yet', { ...middle, class: 'label', 'text-anchor': 'middle' });
  }
  const { labels } = chart.x;
  const y = linearScale(
    domainOf(points.flatMap((point) => [point.y, point.low ?? point.y, point.high ?? point.y])),
    [plot.bottom, plot.top],
    5,
  );
  const x =
    labels === undefined
      ? linearScale(extent(points.map((point) => point.x)), [plot.left, plot.right], 5)
      : linearScale([-0.5, labels.length - 0.5], [plot.left, plot.right], labels.length);
  const marks = chart.series.map((series, i) =>
    labels === undefined
      ? lineMarks(series, x, y)
      : dotMarks(series, x, y, (i - (chart.series.length - 1) / 2) * 7),
  );
  const words = layout.hasWords ? legend(chart, plot) : '';
  return [title, yAxis(chart, y, plot), xAxis(chart, x, plot), ...marks, words].join('');
}

function yAxis({ y: { name, isPercentage } }: Chart, { place, ticks }: Scale, plot: Plot): string {
  const shown = (value: number) => (isPercentage ? `${plain(100 * value)} %` : plain(value));
  const lines = ticks.map((tick) => {
    const y = place(tick);
    const grid = element('line', { x1: plot.left, x2: plot.right, y1: y, y2: y, class: 'grid' });
    const label = { x: plot.left - 6, y: y + 4, class: 'label', 'text-anchor': 'end' };
    return grid + text(shown(tick), label);
  });
  const middle = (plot.top + plot.bottom) / 2;
  const turned = { transform: `translate(13 ${middle}) rotate(-90)`, 'text-anchor': 'middle' };
  if (name === '') return lines.join('');
  return lines.join('') + text(name, { ...turned, class: 'label' });
}

function xAxis({ x: { name, labels } }: Chart, { place, ticks }: Scale, plot: Plot): string {
  const shown =
    labels === undefined
      ? ticks.map((tick) => [tick, plain(tick)] as const)
      : labels.map((label, i) => [i, label] as const);
  const frame = { x1: plot.left, x2: plot.right, y1: plot.bottom, y2: plot.bottom, class: 'frame' };
  const below = { class: 'label', 'text-anchor': 'middle' };
  const middle = (plot.left + plot.right) / 2;
  return [
    element('line', frame),
    ...shown.map(([at, label]) => text(label, { x: place(at), y: plot.bottom + 16, ...below })),
    text(name, { x: middle, y: plot.bottom + 34, ...below }),
  ].join('');
}

function lineMarks({ name, color, points }: ChartSeries, x: Scale, y: Scale): string {
  const path = (values: readonly (readonly [number, number])[]) =>
    values.map(([px, py]) => `${short(x.place(px))},${short(y.place(py))}`).join(' ');
  const upper = points.map((point) => [point.x, point.high ?? point.y] as const);
  const lower = points.map((point) => [point.x, point.low ?? point.y] as const).reverse();
  const band = { points: path([...upper, ...lower]), class: `band c${color % colors}` };
  const line = {
    points: path(points.map((point) => [point.x, point.y])),
    class: `line c${color % colors}`,
  };
  // A line of a single point has no length.
  const [only] = points.length === 1 ? points : [];
  const dot = only && { cx: short(x.place(only.x)), cy: short(y.place(only.y)), r: 3.5 };
  return [
    element('polygon', band),
    element('polyline', line, element('title', {}, name)),
    dot === undefined ? '' : element('circle', { ...dot, class: `dot c${color % colors}` }),
  ].join('');
}

function dotMarks({ name, color, points }: ChartSeries, x: Scale, y: Scale, shift: number): string {
  const at = (point: ChartPoint) => x.place(point.x) + shift;
  const line = points.map((point) => `${short(at(point))},${short(y.place(point.y))}`).join(' ');
  const dots = points.map((point) => {
    const px = short(at(point));
    const [y1, y2] = [point.low ?? point.y, point.high ?? point.y].map((value) =>
      short(y.place(value)),
    );
    const whisker = { x1: px, x2: px, y1: y1!, y2: y2!, class: `whisker c${color % colors}` };
    const dot = { cx: px, cy: short(y.place(point.y)), r: 3.5, class: `dot c${color % colors}` };
    return element('line', whisker) + element('circle', dot, element('title', {}, name));
  });
  return element('polyline', { points: line, class: `link c${color % colors}` }) + dots.join('');
}

function legend({ legend: heading, series }: Chart, plot: Plot): string {
  const x = plot.right + 12;
  const entries = series.map(({ name, color }, i) => {
    const y = plot.top + 28 + i * 17;
    const line = { x1: x, x2: x + 18, y1: y, y2: y, class: `line c${color % colors}` };
    return element('line', line) + text(name, { x: x + 24, y: y + 4, class: 'label' });
  });
  return text(heading, { x, y: plot.top + 12, class: 'heading' }) + entries.join('');
}

function extent(values: readonly number[]): [number, number] {
  return [Math.min(...values), Math.max(...values)];
}

/** `98k`, `0.25`: no more digits than the ticks need. */
function plain(value: number): string {
  if (Math.abs(value) >= 10_000) return `${Number((value / 1_000).toPrecision(4))}k`;
  return String(Number(value.toPrecision(4)));
}

function short(value: number): number {
  return Number(value.toFixed(2));
}

/** How many colors the style has; then they begin again. */
const colors = 8;

/** Okabe and Ito's colors, which most color-blind readers can distinguish, and brighter ones for dark mode. */
const palette = {
  light: ['#0072b2', '#d55e00', '#009e73', '#b8579a', '#a07400', '#3d93c6', '#7a5195', '#666666'],
  dark: ['#56b4e9', '#ff8a4c', '#2fcf9f', '#e6a5cb', '#f0c24a', '#9ad1f5', '#c3a3e0', '#b5b5b5'],
};

/** Dashes distinguish lines also without color. */
const dashes = ['none', '7 3', '2 3', '9 3 2 3'];

/** The style of charts on light and dark backgrounds, for a page or for an SVG on its own. */
export const chartStyle = `
.chart { --ink: #1b1f24; --soft: #57606a; --rule: #d8dee4;
${variables(palette.light)} font: 12px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { .chart { --ink: #e6edf3; --soft: #9ca7b3; --rule: #30363d;
${variables(palette.dark)} } }
.chart text { fill: var(--soft); } .chart .title { fill: var(--ink); font-size: 14px; font-weight: 600; }
.chart .heading { font-weight: 600; } .chart .grid { stroke: var(--rule); } .chart .frame { stroke: var(--soft); }
.chart .line { fill: none; stroke-width: 2; } .chart .link { fill: none; stroke-opacity: 0.4; }
.chart .band { stroke: none; fill-opacity: 0.15; } .chart .whisker { stroke-width: 1.5; }
${palette.light
  .map(
    (_, i) =>
      `.chart .c${i} { stroke: var(--c${i}); } .chart .dot.c${i}, .chart .band.c${i} { fill: var(--c${i}); }`,
  )
  .join('\n')}
${dashes.map((dash, i) => `.chart .line.c${i}, .chart .line.c${i + 4} { stroke-dasharray: ${dash}; }`).join('\n')}
.chart .band { stroke: none; }
`;

function variables(values: readonly string[]): string {
  return values.map((value, i) => `--c${i}: ${value};`).join(' ');
}

/** A linear map from values to places on the page. */
interface Scale {
  readonly place: (value: number) => number;
  readonly ticks: readonly number[]; // inside the domain, rising
}

/** @param range where the domain's ends lie; the first may be the larger, as for an upward axis. */
export function linearScale(
  [low, high]: readonly [number, number],
  [start, end]: readonly [number, number],
  wantedTicks: number,
): Scale {
  const span = high - low;
  const place = (value: number) =>
    start + (span === 0 ? 0.5 : (value - low) / span) * (end - start);
  return { place, ticks: ticksIn(low, high, wantedTicks) };
}

/** Round numbers, 1, 2 or 5 times a power of ten apart, about as many as wanted. */
function ticksIn(low: number, high: number, wanted: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10]
    .map((factor) => factor * power)
    .find((size) => size >= rough * (1 - 1e-9))!;
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  const decimals = Math.max(0, -Math.floor(Math.log10(step)));
  return Array.from({ length: last - first + 1 }, (_, i) =>
    Number(((first + i) * step).toFixed(decimals)),
  );
}

/** The smallest interval that holds all values, a little wider, so that nothing lies on the frame. */
export function domainOf(values: readonly number[]): [number, number] {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}
