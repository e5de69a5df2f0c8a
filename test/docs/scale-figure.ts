import { join } from 'node:path';
import { z } from 'zod';
import type { Chart } from '../../cli/plot/chart.js';
import { packageRoot } from '../../shared/base/package-root.js';
import { readJson } from '../../shared/base/read-json.js';
import { figureSvg } from '../../tools/sweep/figure.js';

/** What `npm run bench -- plane adapters --json` printed. */
const Bench = z.looseObject({
  machine: z.strictObject({ cpu: z.string(), cores: z.int() }),
  results: z.record(
    z.string(),
    z.array(z.strictObject({ what: z.string(), value: z.number(), unit: z.string() })),
  ),
});

export const scaleFigure = 'docs/performance/scale.svg';
const data = 'docs/performance/scale.json';

/** The figure of cost by scale, from the committed output of the bench. */
export async function drawnScale(): Promise<string> {
  const printed = Bench.parse(await readJson(join(packageRoot, data)));
  return figureSvg('Cost by scale', scaleCharts(printed));
}

/** @throws {Error} if the bench did not measure a point. */
export function scaleCharts({ results }: Pick<z.infer<typeof Bench>, 'results'>): Chart[] {
  const figures = Object.values(results).flat();
  const valueOf = (what: string): number => {
    const found = figures.find((figure) => figure.what === what);
    if (found === undefined) throw new Error(`${data}: nothing measured for "${what}"`);
    return found.value;
  };
  const chart = (
    title: string,
    x: { readonly name: string; readonly labels: readonly string[] },
    unit: string,
    series: Readonly<Record<string, (label: string) => string>>,
  ): Chart => ({
    ...{ title, x, y: { name: unit, isPercentage: false }, legend: '' },
    series: Object.entries(series).map(([name, what], color) => ({
      ...{ name, color },
      points: x.labels.map((label, i) => ({ x: i, y: valueOf(what(label)) })),
    })),
  });

  const actors = { name: 'actors', labels: ['1', '8', '64'] };
  const ofActors = (bytes: number, what: string) => (count: string) =>
    `${count} actors, adapter of ${bytes} bytes: ${what}`;
  const [none, some] = [0, 1_245_184];
  const both = (what: string) => ({
    'no adapter': ofActors(none, what),
    '1.25 MB': ofActors(some, what),
  });
  const sizes = { name: 'MB of an adapter', labels: ['1', '130', '349'] };
  const ofAdapter = (what: string, way: string) => (size: string) =>
    `${size} MB by ${way}: ${what}`;
  const byWay = (what: string) => ({
    'by NATS': ofAdapter(what, 'nats'),
    'by a link': ofAdapter(what, 'link'),
    'by a folder': ofAdapter(what, 'folder'),
  });
  const queue = { name: 'rollouts in the queue', labels: ['1000', '10000', '100000', '1000000'] };
  const ofQueue = (what: string) => (rollouts: string) =>
    `backlog of ${rollouts} rollouts: ${what}`;
  return [
    chart('Publish to first token', actors, 'ms', {
      'no adapter, p50': ofActors(none, 'publish to first token, p50'),
      'no adapter, p99': ofActors(none, 'the same, p99'),
      '1.25 MB, p50': ofActors(some, 'publish to first token, p50'),
      '1.25 MB, p99': ofActors(some, 'the same, p99'),
    }),
    chart('Processor time of an actor', actors, 'ms/s', both('processor of an actor')),
    chart(
      'Until three actors have an adapter',
      sizes,
      's',
      byWay('until three actors have it, median'),
    ),
    chart('Processor time of the learner for it', sizes, 's', byWay('learner, processor')),
    chart('Memory of a learner that is behind', queue, 'MiB', {
      'before it trains': ofQueue('learner, before it trains'),
      'at most': ofQueue('learner, at most'),
    }),
    chart('Memory of an actor', actors, 'MiB', both('memory of an actor')),
  ];
}
