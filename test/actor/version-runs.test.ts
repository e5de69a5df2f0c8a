import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { extendRuns, firstRuns } from '../../actor/sampler/segments.js';

describe('version runs', () => {
  it('start with the first version', () => {
    assert.deepEqual(extendRuns([], 4, 2), [[4, 2]]);
  });
  it('grow while the version stays', () => {
    assert.deepEqual(extendRuns([[4, 2]], 4, 3), [[4, 5]]);
  });
  it('add a run for a newer version', () => {
    const runs = extendRuns([[4, 2]], 6, 1);
    assert.deepEqual(runs, [
      [4, 2],
      [6, 1],
    ]);
  });
  it('are cut with the tokens', () => {
    const runs: [number, number][] = [
      [4, 2],
      [6, 3],
    ];
    assert.deepEqual(firstRuns(runs, 4), [
      [4, 2],
      [6, 2],
    ]);
    assert.deepEqual(firstRuns(runs, 2), [[4, 2]]);
    assert.deepEqual(firstRuns(runs, 9), runs);
  });
  it('contain no empty run', () => {
    assert.deepEqual(extendRuns([[4, 2]], 6, 0), [[4, 2]]);
  });
  it('refuse a lower version after a higher one', () => {
    assert.throws(() => extendRuns([[4, 2]], 3, 1), /version 3 .* after version 4/);
  });
});
