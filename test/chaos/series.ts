import { appendFile, readFile } from 'node:fs/promises';
import type { ChaosOptions, ChaosResult } from './chaos.js';

export interface SeriesOptions {
  /** The seed of the first round; each round has its own. */
  readonly seed: number;
  /** The least number of times that each mishap must happen. */
  readonly atLeast: number;
  /** No new round after this many seconds. */
  readonly maxSeconds: number;
  /** A file with one line of JSON per round; a series continues after the rounds found there. */
  readonly file: string | undefined;
  /** The names of all mishaps. */
  readonly kinds: readonly string[];
  /** Whether the round of a seed has any of these mishaps. */
  readonly isOf?: (seed: number) => boolean;
  readonly round: (options: ChaosOptions) => Promise<ChaosResult>;
  readonly report: (line: string) => void;
}

/** The sum of all rounds. */
export interface SeriesResult {
  readonly rounds: number;
  readonly mishaps: Readonly<Record<string, number>>;
  /** Whether each mishap happened often enough. */
  readonly isEnough: boolean;
  readonly violations: readonly string[]; // each with the seed of its round
  readonly steps: number; // of the surviving weights
  readonly trained: number;
  readonly lost: number;
  readonly largestStaleness: number;
  readonly stillSeconds: number; // the longest time without a step, outages excluded
  readonly seconds: number;
}

/** Runs rounds, each a separate run with a separate audit, until every mishap has happened often enough. */
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
