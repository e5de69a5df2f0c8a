import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { scoresByAnswers } from '../../../actor/sampler/canary-scores.js';
import type { GroupRequest } from '../../../shared/model/rollout-draft.js';
import { boundOfUndrawn } from '../../../shared/rl/canary.js';
import { noLogprob } from '../../../shared/tinker/types.js';

const canary = {
  texts: [Int32Array.of(3, 5), Int32Array.of(3, 4, 9)],
  places: [
    [0, 1],
    [1, 2],
  ] as [number, number][],
  temperature: 0.7,
};

/** An answer of one token, with the logprobs of some of the most probable ones. */
const answer = (token: number, logprob: number, top?: readonly (readonly [number, number])[]) => ({
  tokens: Int32Array.of(token),
  logprobs: Float32Array.of(logprob),
  ...(top && {
    top: {
      k: top.length,
      tokens: Int32Array.from(top, ([shown]) => shown),
      logprobs: Float32Array.from(top, ([, shown]) => shown),
    },
  }),
});

describe('the scores of a sampler that cannot be given tokens', () => {
  it('the scores come from one answer at each place, where the sampler shows the most probable tokens', async () => {
    const asked: GroupRequest[] = [];
    const scores = await scoresByAnswers(canary, 3, (request) => {
      asked.push(request);
      const rest = [[0, noLogprob]] as const;
      return Promise.resolve([
        request.prompt.length === 1
          ? answer(7, -0.5, [[7, -0.5], [5, -1.5], ...rest])
          : answer(7, -0.5, [[7, -0.5], [8, -2.5], ...rest]),
      ]);
    });
    assert.deepEqual(
      asked.map(({ prompt, count, maxTokens, mostProbable, temperature }) => ({
        prompt: [...prompt],
        ...{ count, maxTokens, mostProbable, temperature },
      })),
      [[3], [3, 4]].map((prompt) => ({
        prompt,
        ...{ count: 1, maxTokens: 1, mostProbable: 3, temperature: 0.7 },
      })),
    );
    assert.deepEqual([...scores.logprobs], [-1.5, -2.5]);
    assert.deepEqual(scores.isBound, [false, true], 'a token that is not shown is below all shown');
  });

  it('a token 0 that stands for nothing is not taken for the token 0 of the canary', async () => {
    const zero = {
      ...canary,
      texts: [Int32Array.of(3, 0)],
      places: [[0, 1]] as [number, number][],
    };
    const top = [
      [7, -0.5],
      [0, noLogprob],
    ] as const;
    const scores = await scoresByAnswers(zero, 2, () => Promise.resolve([answer(7, -0.5, top)]));
    assert.deepEqual([[...scores.logprobs], scores.isBound], [[-0.5], [true]]);
  });

  it('the scores come from many draws, where the sampler shows only what it draws', async () => {
    const counts: number[] = [];
    const scores = await scoresByAnswers(canary, 0, ({ count, prompt }) => {
      counts.push(count);
      const token = prompt.length === 1 ? 5 : 1;
      return Promise.resolve([answer(1, -1), answer(token, -2)]);
    });
    assert.deepEqual(counts, [64, 64]);
    assert.deepEqual([...scores.logprobs], [-2, Math.fround(boundOfUndrawn(64))]);
    assert.deepEqual(scores.isBound, [false, true]);
  });
});
