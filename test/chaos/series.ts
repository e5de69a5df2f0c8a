import { appendFile, readFile } from 'node:fs/promises';
import type { ChaosOptions, ChaosResult } from './chaos.js';

export interface SeriesOptions {
  /** Of the first round; each has a seed of its own. */
  readonly seed: number;
  /** How often each mishap is to happen, at least. */
  readonly atLeast: number;
  /** No more of them after so many seconds. */
  readonly maxSeconds: number;
  /** Keeps the result of each round, a line of JSON each; a series that finds some goes on behind them. */
  readonly file: string | undefined;
  /** The names of all mishaps. */
  readonly kinds: readonly string[];
  /** Whether the round of a seed has any of them. */
  readonly isOf?: (seed: number) => boolean;
  readonly round: (options: ChaosOptions) => Promise<ChaosResult>;
  readonly report: (line: string) => void;
}

/** All rounds together. */
export interface SeriesResult {
  readonly rounds: number;
  readonly mishaps: Readonly<Record<string, number>>;
  /** Whether each happened as often as it should. */
  readonly isEnough: boolean;
  readonly violations: readonly string[]; // each with the seed of its round
  readonly steps: number; // of the surviving weights
  readonly trained: number;
  readonly lost: number;
  readonly largestStaleness: number;
  readonly stillSeconds: number; // the longest time without a step while nothing was held down
  readonly seconds: number;
}

/** Runs rounds, each a run of its own with an audit of its own, until there are enough of every mishap. */
export async function runSeries(options: SeriesOptions): Promise<SeriesResult> {
  const { seed, maxSeconds, file, round, report, isOf = () => true } = options;
  const startedAt = performance.now();
  const secondsLeft = () => maxSeconds - (performance.now() - startedAt) / 1_000;
  const results = file === undefined ? [] : await readResults(file);
  let nextSeed = Math.max(seed, ...results.map((each) => each.seed + 1));
  for (;;) {
    const summary = summarize(results, options);
    if (summary.isEnough || secondsLeft() <= 0) return summary;
    while (!isOf(nextSeed)) nextSeed += 1;
    report(`round ${summary.rounds + 1}, seed ${nextSeed}`);
    const result = await round({ seed: nextSeed, maxSeconds: secondsLeft(), report });
    if (file !== undefined) await appendFile(file, `${JSON.stringify(result)}\n`);
    results.push(result);
    nextSeed += 1;
    for (const violation of result.violations) report(`VIOLATION: ${violation}`);
  }
}

async function readResults(file: string): Promise<ChaosResult[]> {
  const text = await readFile(file, 'utf8').catch((caught: unknown) => {
    if ((caught as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw caught;
  });
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as ChaosResult);
}

function summarize(
  results: readonly ChaosResult[],
  { kinds, atLeast }: Pick<SeriesOptions, 'kinds' | 'atLeast'>,
): SeriesResult {
  const mishaps = Object.fromEntries(kinds.map((kind) => [kind, 0]));
  for (const result of results) {
    for (const [kind, count] of Object.entries(result.mishaps))
      mishaps[kind] = (mishaps[kind] ?? 0) + count;
  }
  const sum = (of: (result: ChaosResult) => number) =>
    results.reduce((total, result) => total + of(result), 0);
  return {
    rounds: results.length,
    mishaps,
    isEnough: Object.values(mishaps).every((count) => count >= atLeast),
    violations: results.flatMap(({ seed, violations }) =>
      violations.map((violation) => `seed ${seed}: ${violation}`),
    ),
    steps: sum(({ steps }) => steps),
    trained: sum(({ trained }) => trained),
    lost: sum(({ lost }) => lost),
    largestStaleness: Math.max(0, ...results.map(({ largestStaleness }) => largestStaleness)),
    stillSeconds: Math.max(0, ...results.map(({ stillSeconds }) => stillSeconds)),
    seconds: sum(({ seconds }) => seconds),
  };
}
