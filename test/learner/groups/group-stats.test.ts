import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { register } from 'prom-client';
import { GroupStats } from '../../../learner/groups/group-stats.js';
import { rollout, rolloutGroup, scoredGroup, ticket } from '../../support/messages.js';

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
    stats.consumed(
      answers([
        [2, 'stop'],
        [longest, 'length'],
      ]),
    );
    assert.equal(stats.take()['env/all/cut'], 0);
    stats.consumed(
      answers([
        [2, 'stop'],
        [3, 'length'],
      ]),
    );
    assert.equal(stats.take()['env/all/cut'], 0.5);
  });

  it('the length of an answer that was cut counts as the longest, so cutting shows as a preference for short ones', () => {
    const honest = new GroupStats();
    honest.consumed(
      answers([
        [2, 'stop'],
        [longest, 'length'],
      ]),
    );
    assert.equal(honest.take()['length_ks_distance'], 0);
    const cutting = new GroupStats();
    cutting.consumed(
      answers([
        [2, 'stop'],
        [3, 'length'],
      ]),
    );
    assert.equal(cutting.take()['length_ks_distance'], 0.5);
  });
});

describe("the statistics of a step's groups", () => {
  it('the group statistics count each group once: on arrival if skipped, otherwise when trained', () => {
    const groupStats = new GroupStats();
    const make = (correct: boolean[], lengths: number[]) => {
      const rollouts = lengths.map((length) => ({
        ...rollout(length),
        stopReason: length >= 3 ? ('length' as const) : ('stop' as const), // 3 is cut by time
      }));
      const asked = ticket();
      const samplingParams = { ...asked.samplingParams, maxTokens: 4 };
      const group = rolloutGroup({ ticket: { ...asked, samplingParams }, rollouts });
      const { scores } = scoredGroup({ group });
      return scoredGroup({
        group,
        scores: scores.map((score, i) => ({
          ...score,
          isCorrect: correct[i]!,
          reward: Number(correct[i]),
          hasFormat: i === 0,
        })),
      });
    };
    const mixed = make([true, false], [2, 4]);
    groupStats.consumed(make([true, true], [1, 3]));
    groupStats.consumed(mixed);
    const rates = groupStats.take();
    assert.equal(rates['env/all/correct'], 3 / 4);
    assert.equal(rates['env/all/format'], 2 / 4);
    assert.equal(rates['env/all/truncated'], 1 / 4);
    assert.equal(rates['env/all/cut'], 1 / 4);
    assert.equal(rates['ac_tokens_per_turn'], 10 / 4);
    assert.equal(rates['by_group/frac_all_good'], 1 / 2);
    assert.equal(rates['by_group/frac_mixed'], 1 / 2);
    // -logprob is 1/8, 2/8, … along each answer: 3/8 + 10/8 + 1/8 + 6/8 over 10 tokens.
    assert.equal(rates['entropy'], 20 / 80);
    assert.equal(rates['length_ks_distance'], 1 / 4); // the cut one counts as 4
  });

  it('the group statistics include the rewards that the majority of actors report', () => {
    const groupStats = new GroupStats();
    for (const [actor, reward] of [
      ['honest', 0.5],
      ['liar', 0],
      ['liar', 0],
    ] as const) {
      const { group, scores, ...rest } = scoredGroup();
      const paid = scores.map((score) => ({ ...score, reward }));
      groupStats.consumed({ ...rest, group: { ...group, actor }, scores: paid });
    }
    const rates = groupStats.take();
    assert.equal(rates['env/all/reward/upper'], 0.5);
    assert.equal(rates['env/all/reward/lower'], 0);
  });

  it('the exported mean reward is that of the last step that has answers', async () => {
    const exported = async () => {
      const { values } = await register.getSingleMetric('rl_reward')!.get();
      return values.map(({ value }) => value);
    };
    const groupStats = new GroupStats();
    const scored = scoredGroup({ group: rolloutGroup({ rollouts: [rollout(1), rollout(2)] }) });
    const paid = (rewards: readonly number[]) => ({
      ...scored,
      scores: scored.scores.map((score, i) => ({ ...score, reward: rewards[i]! })),
    });
    groupStats.consumed(paid([1, 1]));
    groupStats.consumed(paid([-0.5, 0.25]));
    assert.equal(groupStats.take()['env/all/reward/total'], 0.4375);
    assert.deepEqual(await exported(), [0.4375]);
    groupStats.take();
    assert.deepEqual(await exported(), [0.4375]);
    groupStats.consumed(paid([0, 0.5]));
    groupStats.take();
    assert.deepEqual(await exported(), [0.25]);
  });

  it('a group whose answers are all wrong is uniform only if their rewards are equal', async () => {
    const uniform = async () => {
      const { values } = await register.getSingleMetric('rl_zero_variance_groups_total')!.get();
      return values[0]!.value;
    };
    const groupStats = new GroupStats();
    const wrong = (rewards: readonly string[]) => {
      const scored = scoredGroup({ group: rolloutGroup({ rollouts: [rollout(1), rollout(2)] }) });
      const scores = scored.scores.map((score, i) => ({
        ...score,
        isCorrect: false,
        exactReward: rewards[i]!,
      }));
      return { ...scored, scores };
    };
    const before = await uniform();
    groupStats.consumed(wrong(['1/10', '1/5']));
    assert.equal((await uniform()) - before, 0);
    groupStats.consumed(wrong(['1/10', '2/20']));
    assert.equal((await uniform()) - before, 1);
  });

  it('the group statistics separate replayed problems from fresh ones', () => {
    const groupStats = new GroupStats(({ problemId }) => problemId === 'again');
    const make = (problemId: string, correct: readonly boolean[]) => {
      const scored = scoredGroup({ group: rolloutGroup({ ticket: ticket({ problemId }) }) });
      const scores = scored.scores.map((score, i) => ({ ...score, isCorrect: correct[i]! }));
      return { ...scored, scores };
    };
    groupStats.consumed(make('again', [true, false]));
    groupStats.consumed(make('new', [true, true]));
    groupStats.consumed(make('new', [true, false]));
    const rates = groupStats.take();
    assert.equal(rates['replayed/group_share'], 1 / 3);
    assert.equal(rates['replayed/frac_mixed'], 1);
    assert.equal(rates['fresh/frac_mixed'], 1 / 2);
    assert.equal(rates['fresh/correct'], 3 / 4);
    assert.equal(new GroupStats().take()['replayed/group_share'], undefined);
  });

  it('the group statistics tell the solved share of new problems from that of rehearsed ones', async () => {
    const exported = async () => {
      const { values } = await register.getSingleMetric('rl_solved_share')!.get();
      return new Map(values.map(({ labels, value }) => [labels['kind'], value]));
    };
    const groupStats = new GroupStats(undefined, ({ problemId }) => problemId === 'known');
    const make = (problemId: string, correct: readonly boolean[]) => {
      const scored = scoredGroup({ group: rolloutGroup({ ticket: ticket({ problemId }) }) });
      const scores = scored.scores.map((score, i) => ({ ...score, isCorrect: correct[i]! }));
      return { ...scored, scores };
    };
    groupStats.consumed(make('known', [true, true]));
    groupStats.consumed(make('unknown', [true, false]));
    groupStats.consumed(make('unknown', [false, false]));
    const rates = groupStats.take();
    assert.equal(rates['env/all/correct'], 3 / 6);
    assert.equal(rates['env/new/correct'], 1 / 4);
    assert.equal(rates['env/rehearsal/correct'], 1);
    assert.deepEqual(Object.fromEntries(await exported()), { all: 0.5, new: 0.25, rehearsal: 1 });

    groupStats.consumed(make('unknown', [true, false]));
    assert.equal(groupStats.take()['env/rehearsal/correct'], undefined); // the step had none
    const ofOneKind = new GroupStats();
    ofOneKind.consumed(make('unknown', [true, false]));
    assert.equal(ofOneKind.take()['env/new/correct'], undefined);
  });

  describe('the length distance', () => {
    const groupOf = (length: number) =>
      scoredGroup({ group: rolloutGroup({ rollouts: [rollout(length), rollout(length)] }) });
    const distance = (groupStats: GroupStats) => groupStats.take()['length_ks_distance'];

    it('the length distance is 0 while every answer is used, in whatever order', () => {
      const groupStats = new GroupStats();
      groupStats.consumed(groupOf(2));
      groupStats.consumed(groupOf(3));
      assert.equal(distance(groupStats), 0);
      groupStats.consumed(groupOf(9));
      assert.equal(distance(groupStats), 0);
    });

    it('the length distance grows with long answers that come too late', () => {
      const groupStats = new GroupStats();
      groupStats.consumed(groupOf(2));
      groupStats.refused(groupOf(9));
      assert.equal(distance(groupStats), 0.5);
    });

    it('the length distance counts an attempt given up while it was sampled as the longest answers', () => {
      const groupStats = new GroupStats();
      for (let i = 0; i < 3; i++) groupStats.consumed(groupOf(2));
      groupStats.givenUp(ticket({ groupSize: 2 })); // of at most 16 tokens
      assert.equal(distance(groupStats), 0.25);
      groupStats.consumed(groupOf(16)); // used ones of that length, 1 of 4, and all of them, 2 of 5
      assert.equal(distance(groupStats), 2 / 5 - 1 / 4);
    });

    it('the length distance forgets what ended more than 1,024 attempts ago', () => {
      const groupStats = new GroupStats();
      groupStats.refused(groupOf(9));
      for (let i = 1; i < 1_024; i++) groupStats.consumed(groupOf(2));
      assert.equal(distance(groupStats)!.toFixed(9), (1 / 1_024).toFixed(9));
      groupStats.consumed(groupOf(2));
      assert.equal(distance(groupStats), 0);
    });
  });
});
