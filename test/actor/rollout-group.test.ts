import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { rolloutGroup } from '../../actor/group-messages.js';
import { tokenCount } from '../../shared/wire/rollout-group.js';
import { decode, encode, WireError } from '../../shared/wire/codec.js';
import { notFinite } from '../../shared/wire/death-cause.js';
import { RolloutGroup, type Rollout } from '../../shared/wire/rollout-group.js';
import { rollout, ticket } from '../support/messages.js';

const groupOf = (...rollouts: Rollout[]) =>
  rolloutGroup({
    ticket: ticket({ groupSize: 2 }),
    actor: 'actor-0',
    prompt: Int32Array.of(1, 2),
    rollouts,
    startedAt: 1_000,
    finishedAt: 1_500,
  });

describe('the message of a sampled group', () => {
  it('a sampled group arrives as it was sampled', () => {
    const group = groupOf(rollout(), rollout(3, { stopReason: 'length' }));
    assert.deepEqual(decode(RolloutGroup, 'rollouts', encode(RolloutGroup, group)), group);
    assert.equal(tokenCount(group), 6);
  });

  it('a sampled group has no logprob above 0', () => {
    const certain = rollout(3, { behaviorLogprobs: Float32Array.of(1e-7, -0.25, 0) });
    assert.deepEqual(
      groupOf(certain, rollout()).rollouts[0]!.behaviorLogprobs,
      Float32Array.of(0, -0.25, 0),
    );
  });

  for (const broken of [NaN, -Infinity, Infinity]) {
    it(`a sampled group is refused with a logprob of ${broken}, naming the version that drew it`, () => {
      const logprobs = Float32Array.of(-0.5, -0.25, broken);
      const versions: [number, number][] = [
        [4, 2],
        [7, 1],
      ];
      const bad = rollout(3, { behaviorLogprobs: logprobs, versions });
      assert.throws(() => groupOf(rollout(), bad), notFinite(7));
    });
  }

  it('a sampled group is not sent with a rollout missing', () => {
    assert.throws(() => encode(RolloutGroup, groupOf(rollout())), WireError);
  });
});
