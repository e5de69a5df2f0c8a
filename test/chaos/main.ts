import { createRandom } from '../../shared/random.js';
import { parseArgs } from '../../shared/npm-flags.js';
import { chaos } from './chaos.js';
import { nameOf, plan } from './mishaps.js';
import { runSeries } from './series.js';

const { values } = parseArgs('test:chaos', {
  options: {
    seed: { type: 'string', default: '0' },
    rounds: { type: 'string', default: '50' },
    minutes: { type: 'string', default: 'Infinity' },
    progress: { type: 'string' },
    json: { type: 'boolean', default: false },
  },
});
const result = await runSeries({
  seed: Number(values.seed),
  atLeast: Number(values.rounds),
  maxSeconds: 60 * Number(values.minutes),
  file: values.progress,
  kinds: plan(createRandom(0)).map((mishap) => nameOf(mishap)),
  round: chaos,
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
