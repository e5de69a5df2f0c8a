import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { ChaosOptions, ChaosResult } from './chaos.js';
import { runSeries, type SeriesOptions } from './series.js';

describe('a series of rounds in which things go wrong', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'offbeat-series-'));
  });
  after(() => rm(folder, { recursive: true }));

  /** Each round has a kill and, if its seed is even, a cut. */
  function series(over: Partial<SeriesOptions>) {
    const seeds: number[] = [];
    const round = ({ seed }: ChaosOptions): Promise<ChaosResult> => {
      seeds.push(seed);
      const mishaps: Record<string, number> = seed % 2 === 0 ? { kill: 1, cut: 1 } : { kill: 1 };
      const violations = seed === 3 ? ['ticket 7 was trained twice'] : [];
      const figures = {
        steps: 10,
        trained: 20,
        lost: 1,
        largestStaleness: 2,
        seconds: 5,
        stillSeconds: 3,
      };
      return Promise.resolve({ seed, mishaps, violations, ownEnds: {}, ...figures });
    };
    const result = runSeries({
      ...{ seed: 1, atLeast: 2, maxSeconds: 60, file: undefined, kinds: ['kill', 'cut'] },
      ...{ round, report: () => undefined },
      ...over,
    });
    return { seeds, result };
  }

  it('a series continues until each mishap has happened often enough and sums up its results', async () => {
    const { seeds, result } = series({});
    const { rounds, mishaps, isEnough, steps, violations } = await result;
    assert.deepEqual(seeds, [1, 2, 3, 4]);
    assert.deepEqual([rounds, mishaps, isEnough, steps], [4, { kill: 4, cut: 2 }, true, 40]);
    assert.deepEqual(violations, ['seed 3: ticket 7 was trained twice']);
  });

  it('a series continues after the rounds that it finds in its file', async () => {
    const file = join(folder, 'progress.jsonl');
    await series({ file, atLeast: 1 }).result;
    const { seeds, result } = series({ file });
    assert.equal((await result).rounds, 4);
    assert.deepEqual(seeds, [3, 4]);
    assert.deepEqual(series({ file }).seeds, []);
  });

  it('a series reports if its time was over before there were enough rounds', async () => {
    const { isEnough, mishaps } = await series({ maxSeconds: 0 }).result;
    assert.deepEqual([isEnough, mishaps], [false, { kill: 0, cut: 0 }]);
  });
});
