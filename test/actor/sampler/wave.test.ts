import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { takeWave, type QueuedGroup } from '../../../actor/sampler/wave.js';

const request = {
  prompt: Int32Array.of(1),
  count: 2,
  temperature: 1,
  maxTokens: 4,
  stopTokenIds: [],
  seed: 0,
};
const group = (id: number, version: number, adoptsNewer: boolean): QueuedGroup => ({
  id,
  request,
  policy: { version, adoptsNewer },
});
const ids = (groups: readonly QueuedGroup[]) => groups.map(({ id }) => id);

describe('a wave of groups sampled side by side', () => {
  it('takes all that follow the newest version, whichever they began with', () => {
    const { wave, rest } = takeWave([group(1, 3, true), group(2, 4, true), group(3, 3, true)]);
    assert.deepEqual([ids(wave), ids(rest)], [[1, 2, 3], []]);
  });

  it('keeps a pinned group apart from those, and from groups of other versions', () => {
    const queue = [group(1, 3, false), group(2, 3, true), group(3, 4, false), group(4, 3, false)];
    const { wave, rest } = takeWave(queue);
    assert.deepEqual(
      [ids(wave), ids(rest)],
      [
        [1, 4],
        [2, 3],
      ],
    );
  });

  it('is empty when nothing waits', () => {
    assert.deepEqual(takeWave([]), { wave: [], rest: [] });
  });
});
