import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { packageRoot } from '../../shared/base/package-root.js';
import { createRandom } from '../../shared/base/random.js';
import { EvalResult } from '../../shared/wire/eval-result.js';
import {
  bootstrapMean,
  type BootstrapOptions,
  type Estimate,
  pairedDifference,
} from '../../tools/sweep/bootstrap.js';
import { answeredByAll, scoresIn } from '../../tools/sweep/measures.js';
import { shownPoints } from '../../tools/sweep/table.js';

const folder = join(packageRoot, 'docs/experiments/smollm2');

const columns = [
  ['temperature 1', 'sampled'],
  ['greedily', 'greedy'],
  ['in 4 tries', 'pass@4'],
  ['in 16 tries', 'pass@16'],
] as const;

const policies = [
  ['before', 'before'],
  ['after the warm-up', 'warmed'],
  ['after RL', 'trained'],
  ['after 128 steps of `maxrl`', 'trained-maxrl'],
] as const;

const gains = [
  ['RL adds, points', 'trained'],
  ['128 steps of `maxrl` add', 'trained-maxrl'],
] as const;

/** The rows of the table of `smollm2.sh`, made from the answers that it has measured. */
export async function publishedModelTable(): Promise<string[][]> {
  const results = new Map<string, EvalResult>();
  for (const [, file] of policies) results.set(file, await answersOf(file));
  const rowsOf = (label: string, cell: (key: string) => string) => [
    label,
    ...columns.map(([, key]) => cell(key)),
  ];
  const scores = (file: string, key: string) => scoresIn(results.get(file)!, key);
  return [
    ['', ...columns.map(([name]) => name)],
    ...policies.map(([label, file]) =>
      rowsOf(label, (key) => {
        const [complete] = answeredByAll([[scores(file, key)]]);
        return shownShare(bootstrapMean(complete!, bootstrap()));
      }),
    ),
    ...gains.map(([label, file]) =>
      rowsOf(label, (key) => {
        const [after, before] = answeredByAll([[scores(file, key)], [scores('warmed', key)]]);
        return shownPoints(pairedDifference(after!, before!, bootstrap()).byProblems);
      }),
    ),
  ];
}

async function answersOf(file: string): Promise<EvalResult> {
  const packed = await readFile(join(folder, `${file}.json.gz`));
  return EvalResult.strip().parse(JSON.parse(gunzipSync(packed).toString())); // beside the run and the step
}

function bootstrap(): BootstrapOptions {
  return { resamples: 10_000, confidence: 0.95, random: createRandom(0) };
}

function shownShare({ mean, low, high }: Estimate): string {
  const [center, from, to] = [mean, low, high].map((share) => (100 * share).toFixed(1));
  return `${center} % (${from} to ${to})`;
}
