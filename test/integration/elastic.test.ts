import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { scaleActors } from '../elastic/scale.js';

describe('actors that come and go', { timeout: 480_000 }, () => {
  it('are one, then four, then one again, and the learner trains on', async () => {
    const { steps, firstContributions } = await scaleActors(4, 3, () => undefined);
    assert(steps.every((count) => count >= 3));
    assert.equal(firstContributions.length, 3);
    // Decoding a group is work: a reading of 0 would be of something else.
    for (const { processorSeconds, wallSeconds } of firstContributions) {
      assert(processorSeconds > 0 && wallSeconds > 0, `${processorSeconds} in ${wallSeconds}`);
    }
  });
});
