import { cpus } from 'node:os';
import { UserError } from '../../shared/base/errors.js';
import { parseArgs } from '../../shared/service/npm-flags.js';
import { benchAdapters } from './adapters.js';
import { benchAdoption } from './adoption.js';
import { benchCanary } from './canary.js';
import { benchEngine } from './engine.js';
import { benchMemory } from './memory.js';
import { benchDecoding, benchTraining } from './model.js';
import { benchPeers } from './peers.js';
import { benchPolls } from './polls.js';
import { benchProducts } from './products.js';
import { benchReplay } from './replay.js';
import { benchPlane } from './plane.js';
import { benchReward } from './reward.js';
import { benchSelection } from './selection.js';
import { benchWire } from './wire.js';

/** One measurement: its figure and unit. */
export interface Figure {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
}

const suites: Record<string, () => Promise<Figure[]> | Figure[]> = {
  decode: benchDecoding,
  train: benchTraining,
  products: benchProducts,
  reward: benchReward,
  wire: benchWire,
  polls: benchPolls,
  plane: benchPlane,
  adapters: benchAdapters,
  adoption: benchAdoption,
  canary: benchCanary,
  engine: benchEngine,
  memory: benchMemory,
  selection: benchSelection,
  replay: benchReplay,
};

const { values, positionals } = parseArgs('bench', {
  options: {
    json: { type: 'boolean', default: false },
    rows: { type: 'string', default: '' }, // of peers, with commas between; all by default
    rounds: { type: 'string', default: '5' }, // of peers
    wall: { type: 'boolean', default: false }, // peers by the clock: on an idle machine
  },
  allowPositionals: true,
});
/** Other software beside ours. Only by name: it takes long, and installs that software. */
const peers = 'peers';
const unknown = positionals.find((name) => name !== peers && !Object.hasOwn(suites, name));
if (unknown !== undefined) {
  const known = [...Object.keys(suites), peers].join(', ');
  throw new UserError(`no bench ${unknown}; there are ${known}`);
}

const machine = { cpu: cpus()[0]?.model.trim() ?? 'unknown', cores: cpus().length };
const names = positionals.length > 0 ? positionals : Object.keys(suites);
const results: Record<string, unknown> = {};
for (const name of names) {
  if (name === peers) {
    const { text, ...measured } = await benchPeers({
      rows: values.rows.split(',').filter((row) => row !== ''),
      rounds: Number(values.rounds),
      clock: values.wall ? 'wall' : 'processor',
    });
    results[name] = measured;
    if (!values.json) process.stdout.write(text);
    continue;
  }
  const figures = await suites[name]!();
  results[name] = figures;
  if (!values.json) process.stdout.write(`${name}\n${figures.map(line).join('')}`);
}
if (values.json) process.stdout.write(`${JSON.stringify({ machine, results })}\n`);
else process.stdout.write(`on ${machine.cores} cores, ${machine.cpu}\n`);

function line({ what, value, unit }: Figure): string {
  const shown = value >= 100 ? Math.round(value).toLocaleString('en') : value.toPrecision(3);
  return `  ${what.padEnd(52)} ${shown.padStart(10)} ${unit}\n`;
}
