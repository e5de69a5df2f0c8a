import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { raceTable, secondsTo } from './race-table.js';

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
    ]).split('\n');
    assert.equal(rows.length, 4);
    assert.match(rows[2]!, /^\| offbeat, `ppo` at 0\.001 +\| 2 +\| 3\.0 ± 0\.0 +\|/);
    assert.match(rows[3]!, /^\| cookbook, .*\| not reached /);
  });
});
