import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { sampleFirst } from '../../actor/first-answers.js';
import type { GroupRequest, SampledRollout } from '../../shared/model/rollout-draft.js';
import { ticket } from '../support/messages.js';

/** A task in which the answer is right whose first token is 1; token 9 ends an answer. */
const source = {
  dataset: { problem: (id: string) => (id === 'p-0' ? { id, difficulty: 'any' } : undefined) },
  task: {
    score: (_problem: unknown, text: string) => ({
      reward: Number(text === '1'),
      exactReward: String(Number(text === '1')),
      hasFormat: true,
      isValid: true,
      isCorrect: text === '1',
      reason: 'scored',
    }),
  },
  tokenizer: { decode: (tokens: Int32Array) => tokens.join(), eosTokenIds: [9] },
};

const request: GroupRequest = {
  prompt: Int32Array.of(3),
  count: 6,
  temperature: 1,
  maxTokens: 4,
  stopTokenIds: [9],
  seed: 5,
};

/** Samples a group of which each rollout's first token is given, and records the parts. */
async function sampled(
  firstTokens: readonly number[],
  {
    first = 3,
    split = 'train',
    failsAt = Infinity,
  }: { first?: number; split?: 'train' | 'eval'; failsAt?: number } = {},
) {
  const parts: [from: number, count: number][] = [];
  let wasted = 0;
  const sample = ({ firstIndex = 0, count }: GroupRequest): Promise<SampledRollout[]> => {
    parts.push([firstIndex, count]);
    if (parts.length > failsAt) return Promise.reject(new Error('abandoned'));
    const rollouts = firstTokens.slice(firstIndex, firstIndex + count).map((token) => ({
      tokens: Int32Array.of(token, 9),
      behaviorLogprobs: Float32Array.of(-1, -1),
      versions: [[0, 2]] as [number, number][],
      stopReason: 'stop' as const,
    }));
    return Promise.resolve(rollouts);
  };
  const asked = ticket({ problemId: 'p-0', split, groupSize: request.count });
  const rollouts = await sampleFirst(asked, request, first, source, sample, (tokens) => {
    wasted += tokens;
  }).catch((error: unknown) => String(error));
  const tokens = typeof rollouts === 'string' ? rollouts : rollouts.map(({ tokens: [t] }) => t);
  return { parts, tokens, wasted };
}

describe('an actor that samples the first answers of a group by themselves', () => {
  it('the other answers are sampled only if the first do not all earn the same', async () => {
    assert.deepEqual(await sampled([1, 0, 1, 0, 1, 1]), {
      parts: [
        [0, 3],
        [3, 3],
      ],
      tokens: [1, 0, 1, 0, 1, 1],
      wasted: 0,
    });
    assert.deepEqual(await sampled([1, 1, 1, 0, 0, 0]), {
      parts: [[0, 3]],
      tokens: [1, 1, 1],
      wasted: 0,
    });
    // Different answers that are worth the same.
    assert.deepEqual((await sampled([0, 2, 4, 1, 1, 1])).tokens, [0, 2, 4]);
  });

  it('groups of evaluations, and all of a run without first answers, are sampled at once', async () => {
    assert.deepEqual((await sampled([1, 1, 1, 1, 1, 1], { split: 'eval' })).parts, [[0, 6]]);
    assert.deepEqual((await sampled([1, 1, 1, 1, 1, 1], { first: 0 })).parts, [[0, 6]]);
  });

  it('the tokens of the first answers are counted as wasted if the others are abandoned', async () => {
    const { tokens, wasted } = await sampled([1, 0, 1, 0, 1, 1], { failsAt: 1 });
    assert.deepEqual([tokens, wasted], ['Error: abandoned', 6]);
  });
});
