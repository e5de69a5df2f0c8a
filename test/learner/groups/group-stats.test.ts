import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GroupStats } from '../../../learner/groups/group-stats.js';
import { rolloutGroup, scoredGroup, ticket } from '../../support/messages.js';

/** A scored group with an answer of each length and end. */
function answers(ends: readonly (readonly [length: number, stopReason: 'stop' | 'length'])[]) {
  const rollouts = ends.map(([length, stopReason]) => ({
    tokens: new Int32Array(length),
    behaviorLogprobs: new Float32Array(length),
    versions: [[0, length] as [number, number]],
    stopReason,
  }));
  const of = ticket({ groupSize: ends.length });
  return scoredGroup({ group: rolloutGroup({ ticket: of, rollouts }) });
}

describe('answers that were cut after a time', () => {
  const longest = ticket().samplingParams.maxTokens;

  it('answers that were cut are counted, and those that reached the limit of their tokens are not', () => {
    const stats = new GroupStats();
    stats.trained(
      answers([
        [2, 'stop'],
        [longest, 'length'],
      ]),
    );
    assert.equal(stats.take()['env/all/cut'], 0);
    stats.trained(
      answers([
        [2, 'stop'],
        [3, 'length'],
      ]),
    );
    assert.equal(stats.take()['env/all/cut'], 0.5);
  });

  it('the length of an answer that was cut counts as the longest, so cutting shows as a preference for short ones', () => {
    const honest = new GroupStats();
    honest.trained(
      answers([
        [2, 'stop'],
        [longest, 'length'],
      ]),
    );
    assert.equal(honest.take()['length_ks_distance'], 0);
    const cutting = new GroupStats();
    cutting.trained(
      answers([
        [2, 'stop'],
        [3, 'length'],
      ]),
    );
    assert.equal(cutting.take()['length_ks_distance'], 0.5);
  });
});
