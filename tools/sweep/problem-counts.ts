import type { Compared } from './compare.js';
import { scoresOf } from './measures.js';
import { describe } from './plan.js';
import type { RunResult } from './results.js';
import type { EvalMeasure, Sweep } from './sweep-file.js';
import type { CellReport } from './table.js';

/** An evaluation that measures of an experiment are of, and the problems that runs were measured on by it. */
export interface ProblemCount {
  readonly at: string; // `start`, `end`, or the name of a further evaluation
  readonly asked: number | undefined; // undefined: all that there are
  readonly runsBy: ReadonlyMap<number, readonly string[]>; // names of runs, by their number of problems
}

/** One for each evaluation that the measures are of. */
export function problemCounts(
  { measures, evaluation, furtherEvaluations }: Sweep,
  results: readonly RunResult[],
): ProblemCount[] {
  const ofEvals = measures.filter((measure): measure is EvalMeasure => measure.from === 'eval');
  return [...new Set(ofEvals.map(({ at }) => at))].map((at) => {
    const further = furtherEvaluations.find(({ name }) => name === at);
    const asked = further === undefined ? evaluation.problems : further.settings['problems'];
    const runsBy = new Map<number, string[]>();
    for (const result of results) {
      const found = scoresOf(result, { at, key: 'sampled' });
      if (found === undefined) continue;
      runsBy.set(found.length, [...(runsBy.get(found.length) ?? []), result.name]);
    }
    return { at, asked: typeof asked === 'number' ? asked : undefined, runsBy };
  });
}

/** `1024 problems`, or what the runs were measured on instead of that. */
export function problemsText({ asked, runsBy }: ProblemCount): string {
  const found = [...runsBy.keys()].sort((a, b) => a - b);
  const askedText = asked === undefined ? 'all' : String(asked);
  if (found.length === 0) return `${askedText} problems`;
  const isAsked = found.length === 1 && (asked === undefined || asked === found[0]);
  return `${found.join(' or ')} problems${isAsked ? '' : ` (${askedText} were asked for)`}`;
}

/** Sentences about rates that are not of the problems that the experiment asks for, or not of the same ones. */
export function problemWarnings(
  counts: readonly ProblemCount[],
  measures: Sweep['measures'],
  cells: readonly CellReport[],
  comparisons: readonly {
    readonly spec: { readonly measure: string };
    readonly compared: readonly Compared[];
  }[],
): string[] {
  const differing = counts
    .filter(({ runsBy }) => runsBy.size > 1)
    .map(({ at, runsBy }) => {
      const parts = [...runsBy].map(([count, names]) => `${count} (${names.join(', ')})`);
      return (
        `The runs were measured on different numbers of problems by the evaluation "${at}": ${parts.join('; ')}. ` +
        'Their rates are not of the same problems; a cell or a difference that would join them is empty.'
      );
    });
  const fewer = counts.flatMap(({ at, asked, runsBy }) => {
    const [count, ...others] = [...runsBy.keys()];
    if (count === undefined || others.length > 0 || asked === undefined || count === asked) {
      return [];
    }
    return `The evaluation "${at}" is of ${count} problems, and ${asked} were asked for.`;
  });
  const leftOut = cells.flatMap(({ choice, measured }) =>
    measures.flatMap(({ name }, i) => {
      const { problems } = measured[i] ?? {};
      return leftOutText(`"${name}" where ${describe(choice)}`, problems);
    }),
  );
  const ofPairs = comparisons.flatMap(({ spec, compared }) =>
    compared.flatMap(({ choice, problems }) =>
      leftOutText(`the difference of "${spec.measure}" where ${describe(choice)}`, problems),
    ),
  );
  return [...differing, ...fewer, ...leftOut, ...ofPairs];
}

/** Problems of a rate. */
export interface ProblemsOfRate {
  readonly all: number;
  readonly leftOut: number; // that a run did not answer, or not as often as the measure needs
}

function leftOutText(what: string, problems: ProblemsOfRate | undefined): string[] {
  if (problems === undefined || problems.leftOut === 0) return [];
  const { all, leftOut } = problems;
  return [
    `${leftOut} of ${all} problems are left out of ${what}: a run has too few answers to them.`,
  ];
}
