import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { chartMarkup, chartSize, chartStyle, type Chart } from '../../../cli/plot/chart.js';
import { figureSvg } from '../../../tools/sweep/figure.js';

const curves: Chart = {
  title: 'Solved & done',
  x: { name: 'samples trained' },
  y: { name: 'solved', isPercentage: true },
  legend: 'versions',
  series: [
    {
      name: 'lag 0',
      color: 0,
      points: [
        { x: 0, y: 0.2 },
        { x: 1_000, y: 0.4, low: 0.3, high: 0.6 },
      ],
    },
    {
      name: 'lag 4',
      color: 1,
      points: [
        { x: 0, y: 0.2 },
        { x: 500, y: 0.3 },
      ],
    },
  ],
};

const ends: Chart = {
  title: 'In the end',
  x: { name: 'lag', labels: ['0', '4'] },
  y: { name: 'entropy', isPercentage: false },
  legend: 'correction',
  series: [
    {
      name: 'cispo',
      color: 2,
      points: [
        { x: 0, y: 1, low: 0.5, high: 1.5 },
        { x: 1, y: 2 },
      ],
    },
  ],
};

/** The places of the line with this class. */
function places(markup: string, element: string, color: number): number[][] {
  const [, points = ''] =
    new RegExp(`<${element} points="([^"]*)" class="[a-z]+ c${color}"`).exec(markup) ?? [];
  return points.split(' ').map((pair) => pair.split(',').map(Number));
}

describe('a chart of curves', () => {
  const markup = chartMarkup(curves);

  it('a chart of curves has a line for each series on one pair of axes', () => {
    const [first, second] = [places(markup, 'polyline', 0), places(markup, 'polyline', 1)];
    assert.deepEqual(first[0], second[0]); // both begin at 0, 0.2
    assert.equal(second[1]![0], (first[0]![0]! + first[1]![0]!) / 2); // 500 of 1,000
    assert(Math.abs(second[1]![1]! - (first[0]![1]! + first[1]![1]!) / 2) < 0.02); // 0.3, of 0.2 to 0.4
    assert(first[1]![1]! < first[0]![1]!); // more is higher
  });

  it('a chart of curves has a band from the lowest to the highest value', () => {
    const band = places(markup, 'polygon', 0);
    assert.equal(band.length, 4);
    const [, [, high], [, low]] = band as [number[], number[], number[]];
    const [, [, middle]] = places(markup, 'polyline', 0) as [number[], number[]];
    assert(high! < middle! && middle! < low!);
  });

  it('a chart of curves describes its data in words', () => {
    for (const words of [
      'Solved &amp; done',
      'samples trained',
      'solved',
      'lag 0',
      'lag 4',
      'versions',
      '60 %',
    ]) {
      assert(markup.includes(`>${words}<`), words);
    }
  });
});

describe('a chart over labels', () => {
  const markup = chartMarkup(ends);

  it('a chart over labels has a dot with a whisker for each label', () => {
    assert.equal(markup.match(/<circle /g)?.length, 2);
    const whiskers = [...markup.matchAll(/y1="([\d.]+)" y2="([\d.]+)" class="whisker c2"/g)];
    const lengths = whiskers.map(([, a, b]) => Number(a) - Number(b));
    assert(lengths[0]! > 50);
    assert.equal(lengths[1], 0);
    for (const label of ['0', '4', 'lag', 'entropy', 'cispo'])
      assert(markup.includes(`>${label}<`));
  });

  it('a chart over labels says if there is no data', () => {
    assert.match(chartMarkup({ ...ends, series: [] }), />In the end<.*>no result yet</);
  });
});

describe('a figure', () => {
  const svg = figureSvg('Lag "and" more', [curves, ends, ends]);

  it('a figure has its charts side by side, two in a row', () => {
    const { width, height } = chartSize;
    assert(svg.includes(`viewBox="0 0 ${2 * width} ${2 * height}"`));
    for (const place of ['0 0', `${width} 0`, `0 ${height}`])
      assert(svg.includes(`translate(${place})`));
  });

  it('a figure has a name for screen readers', () => {
    assert(svg.includes('role="img"'));
    assert(
      svg.includes(
        'aria-label="Lag &quot;and&quot; more: Solved &amp; done; In the end; In the end"',
      ),
    );
  });

  it('a figure is well-formed', () => {
    const open: string[] = [];
    for (const [, slash, name] of svg.matchAll(/<(\/?)([a-z]+)[^>]*>/g)) {
      if (slash === '') open.push(name!);
      else assert.equal(open.pop(), name);
    }
    assert.deepEqual(open, []);
  });

  it('a figure loads nothing from the network and supports light and dark mode', () => {
    assert.doesNotMatch(
      svg.replace('xmlns="http://www.w3.org/2000/svg"', ''),
      /https?:|url\(|@import|<script|href/,
    );
    assert.match(chartStyle, /prefers-color-scheme: dark/);
  });
});
