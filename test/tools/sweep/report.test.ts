import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { cellsOf, planRuns } from '../../../tools/sweep/plan.js';
import { reportHtml, reportMarkdown } from '../../../tools/sweep/report-text.js';
import { reportOf } from '../../../tools/sweep/report.js';
import type { RunResult } from '../../../tools/sweep/results.js';
import { markdownOf, significant } from '../../../tools/sweep/table.js';
import { runResult, sweepOf } from './values.js';

const sweep = sweepOf();
const planned = planRuns(sweep, () => ({ groupsPerBatch: 4, groupSize: 4 }));
const sync = { lag: '0', correction: 'cispo' };
const late = { lag: '4', correction: 'cispo' };
const none = { lag: '4', correction: 'none' };
const results: RunResult[] = [
  runResult(sync, 0, [2, 1, 0, 0]),
  runResult(sync, 1, [1, 1, 1, 2]),
  runResult(late, 0, [2, 1, 0, 0]),
  runResult(none, 0, [0, 0, 0, 0], { reason: 'diverged' }),
];

describe('the report of an experiment', () => {
  const report = reportOf(sweep, planned, results);
  const markdown = reportMarkdown(report);

  it('the report of an experiment has a row for each cell, with the measures of its runs', () => {
    const [head, , ...rows] = markdown.split('\n').filter((line) => line.startsWith('| '));
    assert.match(
      head!,
      /^\| lag +\| correction \| runs +\| solved +\| entropy +\| minutes a run \|$/,
    );
    assert.match(
      rows[0]!,
      /^\| 0 +\| cispo +\| 2 +\| 50\.0 % \(.* to .*\) \| 0\.25 \(0\.25 to 0\.25\)/,
    );
    assert.match(rows[1]!, /^\| 4 +\| cispo +\| 1 of 2 +\| 37\.5 %/);
    assert.match(rows[2]!, /^\| 4 +\| none +\| 1 of 2; 1 ended by diverged +\| 0\.0 %/);
  });

  it('the report of an experiment says how many runs did not end at its limit', () => {
    const ended = [
      runResult(sync, 0, [2, 1, 0, 0], { reason: 'max_minutes' }),
      runResult(sync, 1, [2, 1, 0, 0], { reason: 'stopped' }),
    ];
    const { cells } = reportOf({ ...sweep, limits: { minutes: 10 } }, planned, ended);
    assert.deepEqual(cells[0]!.ends, ['1 ended by stopped']);
  });

  it('the report of an experiment has a row for each comparison, in points', () => {
    assert.match(
      markdown,
      /Differences of "solved" in percentage points; up to 1 less is no worse:/,
    );
    assert.match(
      markdown,
      /\| 4 +\| cispo +\| lag 0 +\| 1 +\| \+0\.0 \(\+0\.0 to \+0\.0\) +\| unknown with one seed +\| no worse +\|/,
    );
    assert.match(
      markdown,
      /\| 4 +\| none +\| lag 0, correction cispo +\| 1 +\| −37\.5 \(.* \| not decided +\|/,
    );
  });

  it('the report of an experiment says how the numbers were obtained', () => {
    assert.match(
      markdown,
      /4 of 6 runs with seeds 0, 1, each until 64 samples, with groupSize 4, loraRank 8/,
    );
    const own = { label: 'x', settings: {}, limits: { steps: 9, minutes: 2 } };
    const axes = [...sweep.axes, { name: 'other', values: [own] }];
    assert.match(
      reportMarkdown(reportOf({ ...sweep, axes }, planned, results)),
      /each until 64 samples; x until 9 steps or 2 minutes, with groupSize 4/,
    );
    assert.match(
      markdown,
      /Rates of the last evaluation of a run, of 4 problems, 2 answers to each; with/,
    );
    const furtherEvaluations = [{ name: 'cool', settings: { problems: 7, samples: 3 }, where: {} }];
    const measures = [{ from: 'eval', name: 'cool', at: 'cool', key: 'sampled' } as const];
    assert.match(
      reportMarkdown(
        reportOf(
          { ...sweep, furtherEvaluations, measures, comparisons: [], panels: [] },
          planned,
          results,
        ),
      ),
      /Rates of the evaluation "cool" by offbeat eval, of 7 problems, with problems 7, samples 3; with/,
    );
    assert.match(markdown, /They took 4 min 0 s on a machine\. SHA-256 of the model: a0b1\./);
  });

  it('the report of an experiment says if the problems are fewer than those asked for', () => {
    const asked = { ...sweep, evaluation: { problems: 9, samples: 2 } };
    const text = reportMarkdown(reportOf(asked, planned, results));
    assert.match(text, /Note\.\*\* The evaluation "end" is of 4 problems, and 9 were asked for\./);
    assert.match(
      text,
      /Rates of the last evaluation of a run, of 4 problems \(9 were asked for\), 2/,
    );
    assert.doesNotMatch(markdown, /Note/);
  });

  it('the report of an experiment says how many problems are left out, and of which rates', () => {
    const lost = runResult(sync, 0, [2, 1, 0, 0]);
    lost.evals.at(-1)!.answers.sampled = { correct: [2, 1, 0, 0], total: [2, 2, 2, 0] };
    const some = reportOf(sweep, planned, [lost, ...results.slice(1)]);
    assert.deepEqual(some.warnings, [
      '1 of 4 problems are left out of "solved" where lag 0, correction cispo: a run has too few answers to them.',
      '1 of 4 problems are left out of the difference of "solved" where lag 4, correction cispo: a run has too few answers to them.',
      '1 of 4 problems are left out of the difference of "solved" where lag 4, correction none: a run has too few answers to them.',
    ]);
    assert.match(reportHtml(some), /<strong>Note\.<\/strong> 1 of 4 problems are left out/);
  });

  it('the report of an experiment joins no rates of different numbers of problems, and names their runs', () => {
    const mixed = reportOf(sweep, planned, [runResult(sync, 0, [2, 1]), ...results.slice(1)]);
    assert.deepEqual(mixed.warnings, [
      'The runs were measured on different numbers of problems by the evaluation "end": 2 (0-cispo-s0); 4 (0-cispo-s1, 4-cispo-s0, 4-none-s0). ' +
        'Their rates are not of the same problems; a cell or a difference that would join them is empty.',
    ]);
    assert.deepEqual(
      mixed.cells.map(({ measured }) => measured[0]?.mean),
      [undefined, 0.375, 0],
    );
    assert.deepEqual(mixed.comparisons[0]!.compared, []);
    assert.match(reportMarkdown(mixed), /of 2 or 4 problems \(4 were asked for\)/);
  });

  it('the report of an experiment is the same for the same results', () => {
    assert.equal(reportMarkdown(reportOf(sweep, planned, results)), markdown);
  });

  it('the report of an experiment draws curves over the samples, and the final measures', () => {
    const [curve, end] = report.charts;
    assert.deepEqual(
      curve!.series.map(({ name, points }) => [name, points.map(({ x }) => x)]),
      [
        ['0', [0, 64]],
        ['4', [0, 64]],
      ],
    );
    const [first] = curve!.series;
    assert.deepEqual(first!.points[1], { x: 64, y: 0.5, low: 0.375, high: 0.625 });
    assert.deepEqual(
      end!.series.map(({ name, color, points }) => [name, color, points.map(({ x, y }) => [x, y])]),
      [
        [
          'cispo',
          0,
          [
            [0, 0.5],
            [1, 0.375],
          ],
        ],
        ['none', 1, [[1, 0]]],
      ],
    );
  });

  it('the report of an experiment is a page that loads no other file', () => {
    const html = reportHtml(report);
    assert.match(
      html,
      /<h1>How stale may data be\?<\/h1>[^]*<svg [^]*<th>solved<\/th>[^]*<td>not decided<\/td>/,
    );
    const own = html.replaceAll('http://www.w3.org/2000/svg', '');
    assert.doesNotMatch(own, /https?:|<script|<link|<img|@import|url\(/);
    assert.match(html, /prefers-color-scheme: dark/);
  });

  it('the report of an experiment can be written before there is a result', () => {
    const empty = reportOf(sweep, planned, []);
    assert.match(reportMarkdown(empty), /\| 0 of 2 \|/);
    assert.match(reportHtml(empty), /no result yet/);
    assert.equal(empty.cells.length, cellsOf(sweep).length);
  });

  it('the report of an experiment averages curves only where every run that still continues has a value', () => {
    const panels = [
      { kind: 'curve', title: 't', from: 'steps', key: 'entropy', smooth: 2, color: 'lag' },
    ];
    const short = runResult(sync, 1, [0, 0, 0, 0], {
      steps: [
        { step: 1, entropy: 3 },
        { step: 2, entropy: 5 },
      ],
    });
    const { charts } = reportOf(sweepOf({ panels }), planned, [
      runResult(sync, 0, [0, 0, 0, 0]),
      short,
    ]);
    // By step: 1 and 3; means of two steps, 3/4 and 4; then the first alone, 5/12 and 7/24.
    assert.deepEqual(
      charts[0]!.series[0]!.points.map(({ x, y }) => [x, Number(y.toFixed(6))]),
      [
        [16, 2],
        [32, 2.375],
        [48, 0.416667],
        [64, 0.291667],
      ],
    );
  });
});

describe('a table', () => {
  it('a table escapes the bars in its texts', () => {
    const table = markdownOf({ head: ['a|b', 'c'], rows: [['1', '2']] });
    assert.equal(table, '| a\\|b | c   |\n| ---- | --- |\n| 1    | 2   |');
  });

  it('a table shows three significant digits', () => {
    assert.deepEqual([0.123456, 1234.5, 0, 0.00012, 1e-7, 2e9].map(significant), [
      '0.123',
      '1230',
      '0',
      '0.00012',
      '1.0e-7',
      '2.0e+9',
    ]);
  });
});
