import { parseArgs } from 'node:util';
import { chaos } from './chaos.js';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '0' },
    rounds: { type: 'string', default: '50' },
    minutes: { type: 'string', default: 'Infinity' },
    json: { type: 'boolean', default: false },
  },
});
const result = await chaos({
  seed: Number(values.seed),
  rounds: Number(values.rounds),
  maxSeconds: 60 * Number(values.minutes),
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
process.exitCode = violations.length === 0 ? 0 : 1;
