import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { encode } from '../../../shared/wire/codec.js';
import { largestGroupBytes } from '../../../shared/wire/rollout-group.js';
import { ScoredGroup } from '../../../shared/wire/scored-group.js';
import { rollout, rolloutGroup, scoredGroup, ticket } from '../../support/messages.js';

const sizesOf = (groupSize: number, maxTokens: number) => ({ groupSize, sampling: { maxTokens } });

describe('the bound on the bytes of a group', () => {
  it('the bound holds for the largest group that the schema and the settings of a run allow', () => {
    for (const [groupSize, length] of [
      [16, 1_024],
      [512, 1],
    ] as const) {
      const most = Number.MAX_SAFE_INTEGER;
      const versions = Array.from({ length }, (_, i): [number, number] => [
        most - length + 1 + i,
        1,
      ]);
      const rollouts = Array.from({ length: groupSize }, () => rollout(length, { versions }));
      const long = { ticketId: 'i'.repeat(128), problemId: 'p'.repeat(256), order: most };
      const promptTokens = new Int32Array(1_000_000);
      const group = rolloutGroup({
        ticket: ticket({ ...long, groupSize }),
        rollouts,
        promptTokens,
      });
      const fraction = '7'.repeat(1_024);
      const score = { ...scoredGroup().scores[0]!, exactReward: fraction, value: fraction };
      const scores = rollouts.map(() => ({ ...score, reward: 1 / 3, reason: '€'.repeat(64) }));
      const { byteLength } = encode(ScoredGroup, scoredGroup({ group, scores }));
      const bound = largestGroupBytes(sizesOf(groupSize, length));
      assert(byteLength <= bound, `${byteLength} of ${bound}`);
      assert(byteLength > bound / 2, `${byteLength} of ${bound}: it bounds nothing`);
    }
  });

  it('the bound is a few times the size of long answers of one version', () => {
    const group = rolloutGroup({ ticket: ticket({ groupSize: 16 }) }, 8_192);
    const { byteLength } = encode(ScoredGroup, scoredGroup({ group }));
    const bound = largestGroupBytes(sizesOf(16, 8_192));
    assert(bound > 3 * byteLength && bound < 8 * byteLength, `${byteLength} of ${bound}`);
  });

  it('the bound grows with the group size of a run', () => {
    assert(largestGroupBytes(sizesOf(4_096, 8_192)) > 4_096 * 8_192 * 8.4);
    assert(largestGroupBytes(sizesOf(16, 20)) < 5 * 2 ** 20);
  });
});
