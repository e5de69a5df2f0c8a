import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { scaleActors } from '../elastic/scale.js';

describe('actors that come and go', { timeout: 480_000 }, () => {
  it('a learner continues to train while its actors scale from one to four and back', async () => {
    const { steps, firstContributions } = await scaleActors(4, 3, () => undefined);
    assert(steps.every((count) => count >= 3));
    assert.equal(firstContributions.length, 3);
    // Decoding a group takes processor time: a reading of 0 would measure something else.
    for (const { processorSeconds, wallSeconds } of firstContributions) {
      assert(processorSeconds > 0 && wallSeconds > 0, `${processorSeconds} in ${wallSeconds}`);
    }
  });
});
