import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { extendRuns, firstRuns } from '../../actor/sampler/segments.js';

describe('version runs', () => {
  it('version runs start with the first version', () => {
    assert.deepEqual(extendRuns([], 4, 2), [[4, 2]]);
  });
  it('a version run grows while the version stays', () => {
    assert.deepEqual(extendRuns([[4, 2]], 4, 3), [[4, 5]]);
  });
  it('a newer version adds a version run', () => {
    const runs = extendRuns([[4, 2]], 6, 1);
    assert.deepEqual(runs, [
      [4, 2],
      [6, 1],
    ]);
  });
  it('version runs are cut with the tokens', () => {
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
  it('version runs are never empty', () => {
    assert.deepEqual(extendRuns([[4, 2]], 6, 0), [[4, 2]]);
  });
  it('version runs refuse a lower version after a higher one', () => {
    assert.throws(() => extendRuns([[4, 2]], 3, 1), /version 3 .* after version 4/);
  });
});
