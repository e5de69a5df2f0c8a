import { readFileSync, readlinkSync } from 'node:fs';
import { basename } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { UpProcess } from '../support/up-process.js';
import type { Figure } from './main.js';

/** The parts that are stopped in turn for three of every four seconds, so that all others wait. */
const slow = [undefined, 'cli.js local-backend', 'cli.js reward-service'] as const;
const secondsEach = 45;
const rounds = 4;
const groupsOfStep = 64;

/**
 * The memory of each process of `npm start`, including native parts, while a run goes unhindered,
 * with a slow backend, with a slow reward service, and again: a process that keeps what passes
 * through it grows in each round. Linux only.
 */
export async function benchMemory(): Promise<Figure[]> {
  const flags = ['--max-minutes=30', '--eval-problems=0', '--actors=1'];
  await using up = await UpProcess.start([...flags, `--groups-per-batch=${groupsOfStep}`]);
  await up.trainsOn();
  const pids: readonly (readonly [string, number])[] = [
    ['launcher', up.child.pid!],
    ['learner', up.pidOf('cli.js learner')],
    ['backend', up.pidOf('cli.js local-backend')],
    ['actor', up.pidOf('cli.js actor')],
    ['reward service', up.pidOf('cli.js reward-service')],
    ['nats-server', up.processes().find((pid) => executableOf(pid) === 'nats-server')!],
  ];
  const figures: Figure[] = [];
  for (let round = 1; round <= rounds; round++) {
    const before = await stepsOf(up);
    const samples = new Map(pids.map(([part]) => [part, [] as number[]]));
    for (const words of slow) {
      const held = words && up.pidOf(words);
      for (let second = 0; second < secondsEach; second++) {
        if (held !== undefined) process.kill(held, second % 4 === 0 ? 'SIGCONT' : 'SIGSTOP');
        await sleep(1_000);
        for (const [part, pid] of pids) samples.get(part)!.push(residentMiB(pid));
      }
      if (held !== undefined) process.kill(held, 'SIGCONT');
    }
    const of = `round ${round}`;
    const groups = groupsOfStep * ((await stepsOf(up)) - before);
    figures.push({ what: `${of}: groups trained`, value: groups, unit: 'groups' });
    for (const [part, rss] of samples) {
      figures.push({ what: `${of}: ${part}, median`, value: median(rss), unit: 'MiB' });
      figures.push({ what: `${of}: ${part}, at most`, value: Math.max(...rss), unit: 'MiB' });
    }
  }
  return figures;
}

async function stepsOf(up: UpProcess): Promise<number> {
  return (await up.read('metrics.jsonl')).trimEnd().split('\n').length;
}

function executableOf(pid: number): string {
  return basename(readlinkSync(`/proc/${pid}/exe`));
}

function residentMiB(pid: number): number {
  const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kib) / 1_024;
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!;
}
