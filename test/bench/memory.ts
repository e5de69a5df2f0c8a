import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { UpProcess } from '../support/up-process.js';
import type { Figure } from './main.js';

/** Of a run's processes, by what their command lines have in common. */
const parts = {
  launcher: 'cli.js up',
  learner: 'cli.js learner',
  backend: 'cli.js local-backend',
  actor: 'cli.js actor',
  'reward service': 'cli.js reward-service',
  'nats-server': 'nats-server',
} as const;
type Part = keyof typeof parts;

/** What is held up for three of four seconds, so that all others wait for it. */
const phases: readonly (readonly [string, Part | undefined])[] = [
  ['unhindered', undefined],
  ['slow backend', 'backend'],
  ['slow reward service', 'reward service'],
];
const warmUpSeconds = 60;
const phaseSeconds = 120;

/**
 * What each process of `npm start` has in memory, native parts included, after each phase of a run, and
 * by how much that grew from the phase's first quarter to its last. Linux only.
 */
export async function benchMemory(): Promise<Figure[]> {
  await using up = await UpProcess.start(['--max-minutes=30', '--eval-problems=0', '--actors=1']);
  await up.trainsOn();
  const pids = Object.entries(parts).map(([part, words]): [Part, number] => [
    part as Part,
    part === 'launcher' ? up.child.pid! : up.pidOf(words),
  ]);
  await sleep(1_000 * warmUpSeconds);
  const figures: Figure[] = [];
  for (const [phase, slow] of phases) {
    const before = await stepsOf(up);
    const samples = new Map(pids.map(([part]) => [part, [] as number[]]));
    const held = pids.find(([part]) => part === slow)?.[1];
    for (let second = 0; second < phaseSeconds; second++) {
      if (held !== undefined) process.kill(held, second % 4 === 3 ? 'SIGCONT' : 'SIGSTOP');
      await sleep(1_000);
      for (const [part, pid] of pids) samples.get(part)!.push(residentMiB(pid));
    }
    const steps = (await stepsOf(up)) - before;
    figures.push({ what: `${phase}: trained in ${phaseSeconds} s`, value: steps, unit: 'steps' });
    for (const [part, rss] of samples) {
      const quarter = rss.length / 4;
      const [early, late] = [median(rss.slice(0, quarter)), median(rss.slice(-quarter))];
      figures.push({ what: `${phase}: ${part}`, value: late, unit: 'MiB' });
      figures.push({ what: `${phase}: ${part} grew by`, value: late - early, unit: 'MiB' });
    }
  }
  return figures;
}

async function stepsOf(up: UpProcess): Promise<number> {
  return (await up.read('metrics.jsonl')).trimEnd().split('\n').length;
}

function residentMiB(pid: number): number {
  const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kib) / 1_024;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
