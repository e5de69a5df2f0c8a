import { chartMarkup } from '../../plot/chart.js';
import { element, escaped } from '../../plot/markup.js';
import type { Curve } from './curves.js';
import { figure, percent } from './format.js';

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
