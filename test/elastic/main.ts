/**
 * `npm run test:elastic -- [--actors N] [--steps N]`: trains with one actor process, with N, and with
 * one again, beside one learner that must not notice. It measures how soon an actor contributes once it
 * is ready, and ends with 1 if that takes longer than 5 seconds, which holds where the machine has
 * room for so many.
 */
import { parseArgs } from '../../shared/npm-flags.js';
import { scaleActors } from './scale.js';

const longestSeconds = 5;
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
  const seconds = [...scaling.firstContributionSeconds].sort((a, b) => a - b);
  const longest = seconds.at(-1)!;
  const median = seconds[Math.floor(seconds.length / 2)]!;
  process.stdout.write(`actors                  1 -> ${actors} -> 1, one learner
steps                   ${scaling.steps.join(' + ')}
groups trained          ${scaling.trained}, none lost, none stale
staleness               at most ${scaling.staleness.max} of ${scaling.staleness.bound}
first contribution      ${median.toFixed(2)} s after readiness, median; ${longest.toFixed(2)} s at most
`);
  if (longest > longestSeconds) {
    note(`an actor took ${longest.toFixed(1)} s; ${longestSeconds} s are allowed`);
    process.exitCode = 1;
  }
}
