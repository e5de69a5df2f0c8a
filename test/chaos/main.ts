import { parseArgs } from '../../shared/service/npm-flags.js';
import { everyName, namesOf, playRound } from './rounds.js';
import { runSeries } from './series.js';

const { values } = parseArgs('test:chaos', {
  options: {
    seed: { type: 'string', default: '0' },
    rounds: { type: 'string', default: '50' },
    minutes: { type: 'string', default: 'Infinity' },
    progress: { type: 'string' },
    'still-seconds': { type: 'string', default: '60' }, // more for a busy machine
    only: { type: 'string', default: '' }, // mishaps whose names contain this
    json: { type: 'boolean', default: false },
  },
});
const result = await runSeries({
  seed: Number(values.seed),
  atLeast: Number(values.rounds),
  maxSeconds: 60 * Number(values.minutes),
  file: values.progress,
  kinds: everyName().filter((name) => name.includes(values.only)),
  isOf: (seed) => namesOf(seed).some((name) => name.includes(values.only)),
  round: (options) =>
    playRound({
      ...options,
      only: values.only,
      stillMs: 1_000 * Number(values['still-seconds']),
    }),
  report: (line) => process.stderr.write(`${line}\n`),
});
const { violations, mishaps, ...figures } = result;
if (values.json) process.stdout.write(`${JSON.stringify(result)}\n`);
else {
  const total = Object.values(mishaps).reduce((sum, count) => sum + count, 0);
  const lines = Object.entries(mishaps).map(
    ([name, count]) => `${String(count).padStart(5)}  ${name}`,
  );
  process.stdout.write(
    `${lines.sort().join('\n')}\n${total} mishaps: ${JSON.stringify(figures)}\n`,
  );
  process.stdout.write(violations.length === 0 ? 'no violations\n' : `${violations.join('\n')}\n`);
}
process.exitCode = violations.length === 0 && result.isEnough ? 0 : 1;
