import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { scoresByAnswers, scoresByPrompts } from '../../../actor/sampler/canary-scores.js';
import type { GroupRequest } from '../../../shared/model/rollout-draft.js';
import { boundOfUndrawn, logprobBands } from '../../../shared/rl/canary.js';
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

  it('the drawn token, which vLLM shows among the most probable ones however improbable it is, bounds no other', async () => {
    const top = [
      [1, -9],
      [7, -0.5],
      [8, -2.5],
    ] as const;
    const improbable = () => Promise.resolve([answer(1, -9, top)]);
    const { logprobs, isBound } = await scoresByAnswers(canary, 3, improbable);
    assert.deepEqual(
      [[...logprobs], isBound],
      [
        [-2.5, -2.5],
        [true, true],
      ],
    );
    const alone = () => Promise.resolve([answer(1, -9, [[1, -9]])]);
    const bounds = await scoresByAnswers(canary, 1, alone);
    assert.deepEqual([...bounds.logprobs], [0, 0], 'no logprob is above 0');
  });

  it('a token 0 that stands for nothing is not taken for the token 0 of the canary', async () => {
    const zero = {
      ...canary,
      texts: [Int32Array.of(3, 0)],
      places: [[0, 1]] as [number, number][],
    };
    const top = [
      [7, -0.5],
      [8, -1.5],
      [0, noLogprob],
    ] as const;
    const scores = await scoresByAnswers(zero, 3, () => Promise.resolve([answer(7, -0.5, top)]));
    assert.deepEqual([[...scores.logprobs], scores.isBound], [[-1.5], [true]]);
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

describe('the scores of a sampler that shows the logprobs of prompts', () => {
  /** What is drawn after a prompt, in turn. */
  const everyToken = (_length: number) => Array.from({ length: 16 }, (_, id) => id);
  const ofCanary = (length: number) => [length === 1 ? 5 : 9];
  const logits = (prompt: Int32Array, length: number) =>
    Float32Array.from({ length: 16 }, (_, id) => Math.sin(1 + id * length + prompt[length - 1]!));

  /** The logprob of a token after the first tokens of a prompt, by a policy of 16 tokens. */
  const logprob = (prompt: Int32Array, length: number, token: number, temperature: number) => {
    const scaled = logits(prompt, length).map((each) => each / temperature);
    const sum = scaled.reduce((total, each) => total + Math.exp(each), 0);
    return scaled[token]! - Math.log(sum);
  };

  /** Draws tokens in turn at one temperature, and scores prompts at another; undefined: not at all. */
  const samplerOf = (drawsAt: number, scoresAt: number | undefined, drawn = everyToken) => {
    const counts: number[] = [];
    const sample = ({ prompt, count, scoresPrompt }: GroupRequest) => {
      counts.push(count);
      const tokens = drawn(prompt.length);
      const promptLogprobs = Float32Array.from(prompt, (token, i) =>
        i === 0 ? NaN : logprob(prompt, i, token, scoresAt ?? 1),
      );
      return Promise.resolve(
        Array.from({ length: count }, (_, i) => ({
          ...answer(
            tokens[i % tokens.length]!,
            logprob(prompt, prompt.length, tokens[i % tokens.length]!, drawsAt),
          ),
          ...(scoresPrompt === true && scoresAt !== undefined && { promptLogprobs }),
        })),
      );
    };
    return { counts, sample };
  };
  const banded = { ...canary, band: logprobBands.fp32 };
  const expected = [logprob(canary.texts[0]!, 1, 5, 0.7), logprob(canary.texts[1]!, 2, 9, 0.7)].map(
    Math.fround,
  );

  it('every token is shown, however improbable, by a few short requests', async () => {
    const { counts, sample } = samplerOf(0.7, 0.7);
    const scores = await scoresByPrompts(banded, sample);
    assert.deepEqual([...scores.logprobs], expected);
    assert.deepEqual(scores.isBound, [false, false]);
    assert(Math.max(...counts) <= 4, 'no place was drawn at many times');
  });

  it('the tokens are drawn where prompts are not scored, or not as answers are', async () => {
    for (const [drawsAt, scoresAt, why, drawn] of [
      [0.7, undefined, /does not show the logprobs of prompts/, everyToken],
      [0.7, 1, /other logprobs than tokens that it draws/, everyToken],
      [0.8, 0.7, /other logprobs than tokens that it draws/, everyToken],
      [0.8, 0.7, /other logprobs than tokens that it draws/, ofCanary],
    ] as const) {
      const { counts, sample } = samplerOf(drawsAt, scoresAt, drawn);
      const scores = await scoresByPrompts(banded, sample);
      assert.deepEqual(
        [...scores.logprobs],
        [logprob(canary.texts[0]!, 1, 5, drawsAt), logprob(canary.texts[1]!, 2, 9, drawsAt)].map(
          Math.fround,
        ),
        'those of the path that draws',
      );
      assert.equal(counts.filter((count) => count === 64).length, 2);
      assert.match(scores.whyDrawn!, why);
    }
  });
});
