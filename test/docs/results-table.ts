import { join } from 'node:path';
import { packageRoot } from '../../shared/base/package-root.js';
import { type Report, reportOf } from '../../tools/sweep/report.js';
import { publishedResults, type RunResult } from '../../tools/sweep/results.js';
import { type Choice, readSweepFile, type Sweep } from '../../tools/sweep/sweep-file.js';
import { shownInterval, shownMeasure, shownPoints } from '../../tools/sweep/table.js';
import { publishedModelTable } from './model-table.js';
import { alignedTable, withSection } from './markdown-table.js';

/** A table of a page, made from the committed results of an experiment. */
interface ResultTable {
  readonly page: string;
  readonly section: string;
  readonly experiment: string;
  readonly isOfDifferences?: true; // from the baseline of the experiment's comparisons, in points
  readonly head: readonly string[];
  readonly rows: readonly {
    readonly label: string;
    readonly choice: Choice;
    readonly measures: readonly (string | undefined)[]; // undefined: an empty cell
  }[];
  /** If given, each measure is shown for each of these choices too. */
  readonly columns?: readonly Choice[];
}

const settingsMeasures = [
  ...['solved', 'solved greedily', 'solved in 16 tries'],
  ...['steps', 'groups with signal', 'entropy at the end'],
];

const before = ['base at temperature 1', 'base greedily', 'base in 4 tries', 'base in 16 tries'];
const after = ['solved', 'greedily', 'in 4 tries', 'in 16 tries', 'in 64 tries'];
const known = [
  'pre-trained problems',
  'pre-trained problems greedily',
  'pre-trained problems in 4 tries',
];
const nothing = [undefined, undefined];

const replays = [0, 0.5, 0.8];

const hardProblems = [
  ...['4 numbers', '4 numbers, replay 0.5'],
  ...['3 and 4 numbers', '3 and 4 numbers, by signal'],
];

const corrections = [
  ...['truncated', 'by sequence', 'decoupled ppo', 'mask: icepop', 'dro'],
  ...['importance sampling', 'mask: sequence', 'mask: geometric', 'ppo'],
];

const batches = [
  ...['16', '16, by root', '32', '32, by root', '64', '64, no format reward'],
  ...['128', '128, by root'],
];

const ranks = ['8', '32', '128', '8, alpha 64', '128, alpha 64'];

const windows = ['wait', 'drop', 'tokens', 'wait, bound 8'];

const loops = [
  ...['default', 'adoption between groups', 're-read on adoption', 'no refill', 'replay 0.5'],
];

const headlineHead = [
  ...['', 'temperature 1', 'greedily', 'in 4 tries', 'in 16 tries', 'in 64 tries'],
];

const rowsBefore: ResultTable['rows'] = [
  { label: 'before', choice: { arm: 'RL' }, measures: [...before, 'base in 64 tries'] },
  {
    label: 'before, at temperature 2',
    choice: { arm: 'RL' },
    measures: [
      ...['base at 2', undefined, 'base in 4 tries at 2', 'base in 16 tries at 2'],
      'base in 64 tries at 2',
    ],
  },
];

const rowOfKnown = (
  label: string,
  arm: string,
  names: readonly string[] = known,
): ResultTable['rows'][number] => ({ label, choice: { arm }, measures: [...names, ...nothing] });

const rowsOfKnown = [
  rowOfKnown(
    'pre-trained problems, before',
    'RL',
    known.map((name) => `${name}, base`),
  ),
  rowOfKnown('pre-trained problems, after', 'RL'),
];

/** The same table on each of the pages. */
const onPages = (pages: readonly string[], table: Omit<ResultTable, 'page'>): ResultTable[] =>
  pages.map((page) => ({ page, ...table }));

const tables: readonly ResultTable[] = [
  ...onPages(['README.md', 'docs/experiments.md'], {
    section: 'the headline',
    experiment: 'headline',
    head: headlineHead,
    rows: [
      ...rowsBefore,
      { label: 'after ten minutes of RL', choice: { arm: 'RL' }, measures: after },
      { label: 'synchronous', choice: { arm: 'synchronous' }, measures: after },
      { label: 'no correction', choice: { arm: 'no correction' }, measures: after },
      { label: 'supervised on solutions', choice: { arm: 'supervised' }, measures: after },
      {
        label: 'random reward, three minutes',
        choice: { arm: 'random reward' },
        measures: after,
      },
      ...rowsOfKnown,
    ],
  }),
  {
    page: 'docs/experiments/new-targets.md',
    section: 'the replication',
    experiment: 'replication',
    head: headlineHead,
    rows: [
      ...rowsBefore,
      { label: 'after ten minutes of RL', choice: { arm: 'RL' }, measures: after },
      { label: 'after ten minutes with `maxrl`', choice: { arm: 'maxrl' }, measures: after },
      ...rowsOfKnown,
      rowOfKnown('pre-trained problems, after `maxrl`', 'maxrl'),
    ],
  },
  ...onPages(['docs/experiments.md', 'docs/experiments/new-targets.md'], {
    section: 'npm start',
    experiment: 'npm-start',
    head: headlineHead,
    rows: [
      {
        label: 'before, at temperature 2',
        choice: { minutes: '10' },
        measures: [
          ...['base at 2', 'base greedily', 'base in 4 tries at 2', 'base in 16 tries at 2'],
          'base in 64 tries at 2',
        ],
      },
      ...Object.entries({ one: '1', two: '2', ten: '10' }).map(([label, minutes]) => ({
        label: `after ${label} minute${label === 'one' ? '' : 's'}`,
        choice: { minutes },
        measures: after,
      })),
      {
        label: 'pre-trained problems, before',
        choice: { minutes: '10' },
        measures: [...known.map((name) => `${name}, base`), ...nothing],
      },
      {
        label: 'pre-trained problems, after ten minutes',
        choice: { minutes: '10' },
        measures: [...known, ...nothing],
      },
    ],
  }),
  {
    page: 'docs/experiments/settings.md',
    section: 'the end of maxrl',
    experiment: 'sharpen',
    head: [
      ...['', 'temperature 1', 'greedily', 'in 4 tries', 'in 16 tries'],
      ...['pre-trained', 'greedily', 'in 4 tries', 'steps', 'entropy'],
    ],
    rows: ['maxrl until 0.7', 'maxrl until 0.85'].map((advantage) => ({
      label: advantage,
      choice: { advantage },
      measures: [
        ...['solved', 'greedily', 'in 4 tries', 'in 16 tries', ...known],
        ...['steps', 'entropy at the end'],
      ],
    })),
  },
  {
    page: 'docs/experiments/new-targets.md',
    section: 'the differences by advantage',
    experiment: 'replication',
    isOfDifferences: true,
    head: ['points more than RL', ...headlineHead.slice(1)],
    rows: [{ label: '`maxrl`', choice: { arm: 'maxrl' }, measures: after }],
  },
  ...onPages(['docs/experiments.md', 'docs/experiments/new-targets.md'], {
    section: 'the controls',
    experiment: 'headline',
    isOfDifferences: true,
    head: ['points more than RL', 'temperature 1', 'greedily', 'in 4 tries', 'in 64 tries'],
    rows: ['synchronous', 'no correction', 'supervised', 'random reward'].map((arm) => ({
      label: arm,
      choice: { arm },
      measures: ['solved', 'greedily', 'in 4 tries', 'in 64 tries'],
    })),
  }),
  {
    page: 'docs/experiments/new-targets.md',
    section: 'the base by temperature',
    experiment: 'base-temperature',
    head: ['temperature', 'one try', 'in 4 tries', 'in 16 tries', 'in 64 tries'],
    rows: [1, 1.3, 1.6, 2, 2.5, 3].map((temperature) => ({
      label: String(temperature),
      choice: { model: 'base' },
      measures: ['solved', 'in 4 tries', 'in 16 tries', 'in 64 tries'].map(
        (name) => `${name} at ${temperature}`,
      ),
    })),
  },
  ratesByRanks('the rates by rank', 'solved'),
  ratesByRanks('the KL by rate and rank', 'KL'),
  ratesByRanks('the differences by rank', 'solved', '32'),
  {
    page: 'docs/experiments/new-targets.md',
    section: 'the problems of reasoning-gym',
    experiment: 'reasoning-gym',
    head: ['', 'before', 'solved', 'greedily', 'in 4 tries', 'staleness', 'KL'],
    rows: [
      {
        label: 'reasoning-gym',
        choice: { problems: 'reasoning-gym' },
        measures: [
          ...['before', 'solved', 'solved greedily', 'solved in 4 tries'],
          ...['staleness', 'KL'],
        ],
      },
    ],
  },
  {
    page: 'docs/experiments/settings.md',
    section: 'the settings',
    experiment: 'settings',
    head: [
      'settings',
      'solved',
      'greedily',
      'in 16 tries',
      'steps',
      'groups with signal',
      'entropy',
    ],
    rows: ['default', 'replay 0.5', 'rate 2e-3', '32 groups'].map((label) => ({
      label: label === 'default' ? 'rate 1e-3' : label, // which was the default then
      choice: { settings: label },
      measures: settingsMeasures,
    })),
  },
  {
    page: 'docs/experiments/settings.md',
    section: 'the exploration',
    experiment: 'exploration',
    head: ['', 'solved', 'greedily', 'in 16 tries', 'groups with signal', 'entropy'],
    rows: ['default', 'bonus 0.1', 'bonus 0.4', 'temperature 1.3', 'by deviation'].map((label) => ({
      label,
      choice: { exploration: label },
      measures: [
        ...['solved', 'solved greedily', 'solved in 16 tries'],
        ...['groups with signal', 'entropy at the end'],
      ],
    })),
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the staleness',
    experiment: 'staleness',
    head: ['lag, correction', 'solved', 'greedily', 'KL', 'effective samples', 'entropy'],
    rows: [0, 1, 2, 4, 8, 16].flatMap((lag) =>
      (lag === 0 ? ['truncated'] : ['truncated', 'none']).map((correction) => ({
        label: lag === 0 ? '0' : `${lag}, ${correction}`,
        choice: { lag: String(lag), correction },
        measures: ['solved', 'solved greedily', 'KL', 'effective samples', 'entropy at the end'],
      })),
    ),
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the differences by lag',
    experiment: 'staleness',
    isOfDifferences: true,
    head: ['points more than at lag 0', 'temperature 1'],
    rows: [1, 2, 4, 8, 16].flatMap((lag) =>
      ['truncated', 'none'].map((correction) => ({
        label: `${lag}, ${correction}`,
        choice: { lag: String(lag), correction },
        measures: ['solved'],
      })),
    ),
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the tickets',
    experiment: 'freshness',
    head: ['tickets', 'solved', 'staleness', 'KL', 'effective samples'],
    rows: ['at once', 'just in time'].map((tickets) => ({
      label: tickets,
      choice: { tickets },
      measures: ['solved', 'staleness', 'KL', 'effective samples'],
    })),
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the difference by tickets',
    experiment: 'freshness',
    isOfDifferences: true,
    head: ['points more than at once', 'temperature 1'],
    rows: [{ label: 'just in time', choice: { tickets: 'just in time' }, measures: ['solved'] }],
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the windows',
    experiment: 'windows',
    head: [
      ...['window', 'solved', 'in 4 tries', 'staleness', 'masked tokens', 'groups lost'],
      ...['length bias', 'KL'],
    ],
    rows: windows.map((window) => ({
      label: window,
      choice: { window },
      measures: [
        ...['solved', 'solved in 4 tries', 'staleness', 'masked tokens', 'groups lost'],
        ...['length bias', 'KL'],
      ],
    })),
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the differences by window',
    experiment: 'windows',
    isOfDifferences: true,
    head: ['points more than wait', 'temperature 1'],
    rows: windows
      .slice(1)
      .map((window) => ({ label: window, choice: { window }, measures: ['solved'] })),
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the corrections',
    experiment: 'corrections',
    head: ['correction', 'solved', 'greedily', 'in 4 tries', 'KL', 'effective samples', 'entropy'],
    rows: corrections.map((correction) => ({
      label: correction,
      choice: { correction },
      measures: [
        ...['solved', 'solved greedily', 'solved in 4 tries'],
        ...['KL', 'effective samples', 'entropy at the end'],
      ],
    })),
  },
  {
    page: 'docs/experiments/stale-data.md',
    section: 'the differences by correction',
    experiment: 'corrections',
    isOfDifferences: true,
    head: ['points more than truncated', 'temperature 1'],
    rows: corrections.slice(1).map((correction) => ({
      label: correction,
      choice: { correction },
      measures: ['solved'],
    })),
  },
  {
    page: 'docs/experiments/settings.md',
    section: 'the batches',
    experiment: 'batch-size',
    head: ['groups', 'steps', 'solved', 'greedily', 'noise', 'entropy', 'groups with signal'],
    rows: batches.map((groups) => ({
      label: groups,
      choice: { groups },
      measures: [
        ...['steps', 'solved', 'solved greedily', 'noise of the gradient norm'],
        ...['entropy at the end', 'groups with signal at the end'],
      ],
    })),
  },
  {
    page: 'docs/experiments/settings.md',
    section: 'the differences by batch',
    experiment: 'batch-size',
    isOfDifferences: true,
    head: ['points more than with 64 groups', 'temperature 1', 'greedily'],
    rows: batches
      .filter((groups) => groups !== '64')
      .map((groups) => ({
        label: groups,
        choice: { groups },
        measures: ['solved', 'solved greedily'],
      })),
  },
  ...[
    { section: 'the batches in two minutes', experiment: 'batch-time' },
    { section: 'the batches in ten minutes', experiment: 'batch-ten-minutes' },
  ].map((named) => ({
    page: 'docs/experiments/settings.md',
    ...named,
    head: ['groups', 'temperature 1', 'greedily', 'in 16 tries', 'steps', 'staleness', 'entropy'],
    rows: ['64', '16'].map((groups) => ({
      label: groups,
      choice: { groups },
      measures: ['solved', 'greedily', 'in 16 tries', 'steps', 'staleness', 'entropy'],
    })),
  })),
  {
    page: 'docs/experiments/settings.md',
    section: 'the difference in two minutes',
    experiment: 'batch-time',
    isOfDifferences: true,
    head: ['points more than with 64 groups', 'temperature 1', 'greedily', 'in 16 tries'],
    rows: [
      { label: '16', choice: { groups: '16' }, measures: ['solved', 'greedily', 'in 16 tries'] },
    ],
  },
  {
    page: 'docs/experiments/loop.md',
    section: 'the replay',
    experiment: 'edge',
    head: ['replayed', 'before', 'solved', 'greedily', 'in 4 tries', 'groups sampled', 'entropy'],
    rows: replays.map((replay) => ({
      label: `${100 * replay} %`,
      choice: { replay: String(replay) },
      measures: [
        ...['before', 'solved', 'solved greedily', 'solved in 4 tries'],
        ...['groups sampled', 'entropy at the end'],
      ],
    })),
  },
  {
    page: 'docs/experiments/loop.md',
    section: 'the differences by replay',
    experiment: 'edge',
    isOfDifferences: true,
    head: ['points more than without', 'temperature 1'],
    rows: replays.slice(1).map((replay) => ({
      label: `${100 * replay} %`,
      choice: { replay: String(replay) },
      measures: ['solved'],
    })),
  },
  {
    page: 'docs/experiments/loop.md',
    section: 'the hard problems',
    experiment: 'hard',
    head: [
      ...['trained on', 'before', 'before, in 16 tries'],
      ...['solved', 'greedily', 'in 4 tries', 'groups sampled'],
    ],
    rows: hardProblems.map((problems) => ({
      label: problems,
      choice: { problems },
      measures: [
        ...['before', 'before in 16 tries'],
        ...['solved', 'solved greedily', 'solved in 4 tries', 'groups sampled'],
      ],
    })),
  },
  {
    page: 'docs/experiments/loop.md',
    section: 'the loop',
    experiment: 'loop',
    head: ['', 'solved', 'greedily', 'groups sampled', 'groups with signal', 'staleness', 'KL'],
    rows: loops.map((loop) => ({
      label: loop,
      choice: { loop },
      measures: [
        ...['solved', 'solved greedily', 'groups sampled', 'groups with signal'],
        ...['staleness', 'KL'],
      ],
    })),
  },
  {
    page: 'docs/experiments/loop.md',
    section: 'the differences of the loop',
    experiment: 'loop',
    isOfDifferences: true,
    head: ['points more than the default', 'temperature 1'],
    rows: loops.slice(1).map((loop) => ({ label: loop, choice: { loop }, measures: ['solved'] })),
  },
];

/** The page with the table of the published model. */
const modelPage = 'docs/experiments/published-model.md';

export const resultPages = [...new Set([...tables.map(({ page }) => page), modelPage])];

/** The page with its tables as the committed results give them. */
export async function updatedResults(name: string, page: string): Promise<string> {
  let updated = page;
  for (const table of tables.filter((table) => table.page === name)) {
    const rows = await rowsOf(table);
    updated = withSection(updated, table.section, alignedTable([table.head, ...rows]));
  }
  if (name !== modelPage) return updated;
  return withSection(updated, 'the published model', alignedTable(await publishedModelTable()));
}

async function rowsOf({
  experiment,
  isOfDifferences,
  rows,
  columns = [{}],
}: ResultTable): Promise<string[][]> {
  const report = await committedReport(experiment);
  const show = isOfDifferences ? differenceIn(report) : measureIn(report);
  return rows.map(({ label, choice, measures }) => [
    label,
    ...measures.flatMap((name) =>
      columns.map((column) => (name === undefined ? '' : show({ ...choice, ...column }, name))),
    ),
  ]);
}

const reports: Record<string, Promise<Report>> = {}; // by experiment: a report takes seconds, and several tables may need it

/** The report of an experiment's committed results. */
export function committedReport(experiment: string): Promise<Report> {
  return (reports[experiment] ??= newReport(experiment));
}

async function newReport(experiment: string): Promise<Report> {
  const file = join(packageRoot, 'docs/experiments', `${experiment}.json`);
  return reportOf(await readSweepFile(file, false), [], await committedResults(experiment));
}

type Show = (choice: Choice, measure: string) => string;

function measureIn({ sweep, cells }: Report): Show {
  return (choice, name) => {
    const cell = cells.find((cell) => isSame(cell.choice, choice));
    const index = sweep.measures.findIndex((measure) => measure.name === name);
    if (cell === undefined || index === -1) throw missing(sweep, choice, name);
    return shownMeasure(sweep.measures[index]!, cell.measured[index]);
  };
}

/** `+1.0 (0.5 to 1.5; -2 to 4 by seeds)` */
function differenceIn({ sweep, comparisons }: Report): Show {
  return (choice, name) => {
    const found = comparisons
      .filter(({ spec }) => spec.measure === name)
      .flatMap(({ compared }) => compared.filter((one) => isSame(one.choice, choice)));
    if (found.length !== 1) throw missing(sweep, choice, name);
    const { byProblems, bySeeds } = found[0]!;
    if (bySeeds === undefined) return shownPoints(byProblems);
    return `${shownPoints(byProblems).slice(0, -1)}; ${shownInterval(bySeeds)} by seeds)`;
  };
}

function missing({ name }: Sweep, choice: Choice, measure: string): Error {
  return new Error(`${name} has no ${measure} of ${JSON.stringify(choice)}`);
}

/** @param against the rank of which differences are shown; undefined: the measure itself. */
function ratesByRanks(section: string, measure: string, against?: string): ResultTable {
  const shown = ranks.filter((rank) => rank !== against);
  return {
    ...{ page: 'docs/experiments/settings.md', section, experiment: 'learning-rate' },
    ...(against !== undefined && { isOfDifferences: true }),
    head: ['learning rate', ...shown.map((rank) => `rank ${rank}`)],
    rows: ['0.0003', '0.001', '0.003', '0.01'].map((rate) => ({
      ...{ label: rate, choice: { 'learning rate': rate }, measures: [measure] },
    })),
    columns: shown.map((rank) => ({ rank })),
  };
}

/** The committed results of an experiment. */
export function committedResults(experiment: string): Promise<RunResult[]> {
  return publishedResults(join(packageRoot, 'docs/experiments/results', experiment));
}

function isSame(a: Choice, b: Choice): boolean {
  return Object.keys(a).every((axis) => a[axis] === b[axis]);
}
