import { chartMarkup, chartSize, chartStyle, type Chart } from './chart.js';
import { element, escaped } from './markup.js';

/** Charts side by side, two in a row, as one SVG that needs nothing else: also a file of its own. */
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
