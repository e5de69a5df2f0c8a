import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { raceRatios, raceTable, secondsTo } from './race-table.js';

const step = (seconds: number, right: number) => {
  return { seconds, answers: 1_024, right, staleness: 0 };
};
const steps = [step(1, 1_024), step(2, 0), step(3, 0), step(4, 512)];

describe('the table of races', () => {
  it('a share of right answers is reached when the newest two thousand answers have it', () => {
    assert.deepEqual(
      [0.5, 0.25, 0.6].map((share) => secondsTo({ steps }, share)),
      [2, 2, Infinity],
    );
    assert.equal(secondsTo({ steps: steps.slice(2) }, 0.25), 4);
  });

  it('the table of races has a row for each system with its settings, over the seeds, up to the end of the time', () => {
    const race = {
      system: 'offbeat',
      bound: 8,
      loss: 'ppo',
      learningRate: 1e-3,
      minutes: 0.05,
    } as const;
    const rows = raceTable([
      { ...race, seed: 0, steps },
      { ...race, seed: 1, steps },
      { ...race, system: 'cookbook', seed: 0, steps: steps.slice(0, 1) },
      { ...race, windowPolicy: 'drop', seed: 0, steps },
    ]).split('\n');
    assert.equal(rows.length, 5);
    assert.match(rows[2]!, /^\| offbeat, `ppo` at 0\.001 +\| 2 +\| 3\.0 ± 0\.0 +\|/);
    assert.match(rows[3]!, /^\| cookbook, .*\| not reached /);
    assert.match(rows[4]!, /^\| offbeat, `ppo` at 0\.001, drop +\| 1 +\|/);
  });

  it('races of two systems are compared by seed, and a share that is not reached counts as reached at the end', () => {
    const at = (seconds: number) => [step(seconds / 2, 0), step(seconds, 1_024)];
    const race = { bound: 8, loss: 'ppo', learningRate: 1e-3, minutes: 1 } as const;
    const rows = raceRatios([
      { ...race, system: 'offbeat', seed: 0, steps: at(10) },
      { ...race, system: 'cookbook', seed: 0, steps: at(20) },
      { ...race, system: 'offbeat', seed: 1, steps: at(20) },
      { ...race, system: 'cookbook', seed: 1, steps: at(20).slice(0, 1) }, // at the end, after 60 s
      { ...race, system: 'cookbook', seed: 1, steps: at(1), loss: 'cispo' },
      { ...race, system: 'cookbook', seed: 2, steps: at(1) },
    ]).split('\n');
    assert.match(rows[2]!, /many steps +\| 1\.41 \(0\.02 to 115\.\d+\) +\| 1\.0, 2\.0 /);
    const fast =
      /fast to 20 % \(not reached by Offbeat 0, by the cookbook 1 times\) +\| 2\.45 .*\| 2\.0, 3\.0 /;
    assert.match(
      rows.find((row) => row.includes(' 20 %'))!,
      fast,
    );
  });

  it('runs of Offbeat with other settings than its defaults are compared by themselves', () => {
    const race = { bound: 8, loss: 'ppo', learningRate: 1e-3, minutes: 1, seed: 0 } as const;
    const races = [
      { ...race, system: 'offbeat' as const, steps },
      { ...race, system: 'offbeat' as const, windowPolicy: 'drop', steps: steps.slice(0, 2) },
      { ...race, system: 'cookbook' as const, steps: steps.slice(0, 2) },
    ];
    const stepsOf = (table: string) => table.split('\n')[2]!.split('|')[3]!.trim();
    assert.equal(stepsOf(raceRatios(races)), '2.0');
    assert.equal(stepsOf(raceRatios(races, { windowPolicy: 'drop' })), '1.0');
  });
});
