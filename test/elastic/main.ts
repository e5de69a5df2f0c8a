/**
 * `npm run test:elastic -- [--actors N] [--steps N]`: trains with one actor process, with N, and with
 * one again, beside one learner that must not be disturbed. It measures the time from an actor's
 * readiness to its first group, and ends with 1 if that is more than a second of processor time. The elapsed seconds are
 * printed but not bounded: with 64 actors on two cores they measure the queue for a core.
 */
import { availableParallelism } from 'node:os';
import { parseArgs } from '../../shared/service/npm-flags.js';
import { scaleActors } from './scale.js';

const mostProcessorSeconds = 1;
const { values } = parseArgs('test:elastic', {
  options: {
    actors: { type: 'string', default: '8' },
    steps: { type: 'string', default: '10' },
  },
});
const [actors, steps] = [values.actors, values.steps].map(Number);
if (!(Number.isInteger(actors) && actors! >= 2 && Number.isInteger(steps) && steps! >= 1)) {
  process.stderr.write(
    `--actors ${values.actors} and --steps ${values.steps}: expected whole numbers of at least 2 and 1\n`,
  );
  process.exitCode = 2;
} else {
  const note = (line: string) => process.stderr.write(`${line}\n`);
  const scaling = await scaleActors(actors!, steps!, note);
  const [processor, wall] = (['processorSeconds', 'wallSeconds'] as const).map((kind) =>
    scaling.firstContributions.map((first) => first[kind]).sort((a, b) => a - b),
  ) as [number[], number[]];
  const spread = (seconds: readonly number[]): string =>
    `${seconds[Math.floor(seconds.length / 2)]!.toFixed(2)} s, median; ${seconds.at(-1)!.toFixed(2)} s at most`;
  const longest = processor.at(-1)!;
  process.stdout.write(`actors                  1 -> ${actors} -> 1, one learner
steps                   ${scaling.steps.join(' + ')}
groups trained          ${scaling.trained}, none lost, none stale
staleness               at most ${scaling.staleness.max} of ${scaling.staleness.bound}
first group, processor  ${spread(processor)}; ${mostProcessorSeconds} s allowed
first group, elapsed    ${spread(wall)}; ${availableParallelism()} cores for all
`);
  if (longest > mostProcessorSeconds) {
    note(`an actor used ${longest.toFixed(1)} s of processor time for its first group`);
    process.exitCode = 1;
  }
}
