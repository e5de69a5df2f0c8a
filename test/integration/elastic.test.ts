import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { scaleActors } from '../elastic/scale.js';

describe('actors that come and go', { timeout: 480_000 }, () => {
  it('are one, then four, then one again, and the learner trains on', async () => {
    const { steps, firstContributionSeconds } = await scaleActors(4, 3, () => undefined);
    assert(steps.every((count) => count >= 3));
    assert.equal(firstContributionSeconds.length, 3);
  });
});
