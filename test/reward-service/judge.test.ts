import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { characterVocabSize } from '../../shared/model/character-tokenizer.js';
import { loadTokenizer, type Tokenizer } from '../../shared/model/tokenizer.js';
import type { RolloutGroup } from '../../shared/wire/rollout-group.js';
import { GroupRefused, type RefusalReason } from '../../reward-service/check-group.js';
import { createJudge, type Judge } from '../../reward-service/judge.js';
import { styles } from '../../shared/tasks/countdown/prompts.js';
import { countdownSpec, zeroOrOne } from '../support/countdown-task.js';
import { runConfig } from '../support/messages.js';
import { tinyModel } from '../support/tiny-model.js';
import { answers, dataset, heldOut, trained } from './values.js';

const task = countdownSpec({ reward: { ...zeroOrOne, formatScore: 0.1, shaping: 'constant' } });
const run = runConfig({ task, groupSize: 2, sampling: { temperature: 1, maxTokens: 16 } });

let model: Awaited<ReturnType<typeof tinyModel>>;
let tokenizer: Tokenizer;
let judge: Judge;
before(async () => {
  model = await tinyModel();
  tokenizer = await loadTokenizer(model);
  judge = createJudge(run, dataset, tokenizer, characterVocabSize);
});
after(() => model[Symbol.asyncDispose]());

describe('the judge of a run', () => {
  it('the judge scores a group in its order, from its tokens', () => {
    const scores = [
      ['(7-3)*21', '7-3+21'],
      ['21', '7-'],
    ].map((texts) => judge.scoreGroup(answers(tokenizer, texts)));
    assert.deepEqual(
      scores.flat().map(({ exactReward, reason }) => [exactReward, reason]),
      [
        ['1', 'correct'],
        ['1/10', 'wrong_value'],
        ['1/10', 'wrong_numbers'],
        ['1/10', 'wrong_numbers'],
      ],
    );
  });

  it('the judge scores a held-out problem for an eval ticket', () => {
    const group = answers(tokenizer, ['2*5-9'], { split: 'eval' }, heldOut);
    assert.equal(judge.scoreGroup(group)[0]!.reward, 1);
  });

  it('the judge scores a text with other rewards or another prompt on request', () => {
    const reward = { formatScore: 0.1, shaping: 'continuous' };
    assert.equal(judge.task().score(trained, '3*21+7').exactReward, '1/10');
    assert.equal(judge.task({ reward }).score(trained, '3*21+7').exactReward, '4/25');
    const other = judge.task({ reward, prompt: styles.fewshot.en });
    assert.equal(other.score(trained, '<answer>3*21+7</answer>').exactReward, '4/25');
  });
});

describe('a group that does not answer its ticket is refused', () => {
  const refused = (group: RolloutGroup, reason: RefusalReason, message: RegExp) => {
    assert.throws(
      () => judge.scoreGroup(group),
      (error: unknown) => {
        assert(error instanceof GroupRefused);
        assert.equal(error.reason, reason);
        assert.match(error.message, message);
        return true;
      },
    );
  };
  const group = (named: Parameters<typeof answers>[2] = {}) =>
    answers(tokenizer, ['(7-3)*21', '3'], named);

  it('a group is refused for an unknown problem', () => {
    refused(group({ problemId: '1,2,3=4000' }), 'unknown_problem', /1,2,3=4000 of ticket t-0/);
  });

  it('a group is refused for training on a held-out problem', () => {
    const leaked = answers(tokenizer, ['2*5-9', '1'], { split: 'train' }, heldOut);
    refused(leaked, 'wrong_split', /is not in split train/);
    refused(group({ split: 'eval' }), 'wrong_split', /is not in split eval/);
  });

  it('a group is refused for a number of rollouts other than that of the run, whatever its ticket says', () => {
    const [one, three] = [['3'], ['3', '7', '21']];
    refused(answers(tokenizer, one), 'wrong_group_size', /t-0 asks for 1 .* this run have 2/);
    refused(answers(tokenizer, three), 'wrong_group_size', /asks for 3 rollouts/);
    const measured = (...texts: string[]) => answers(tokenizer, texts, { split: 'eval' }, heldOut);
    assert.equal(judge.scoreGroup(measured('1')).length, 1); // evaluations have other numbers
    refused(measured('1', '2', '5'), 'wrong_group_size', /asks for 3 rollouts/);
  });

  it('a group is refused for more tokens than the run samples, though its ticket allows them', () => {
    const samplingParams = { temperature: 1, maxTokens: 17, seed: 7 };
    const message = /ticket t-0 allows 17 tokens; this run samples at most 16/;
    refused(group({ samplingParams }), 'too_many_tokens', message);
    const measured = answers(tokenizer, ['2*5-9'], { split: 'eval', samplingParams }, heldOut);
    refused(measured, 'too_many_tokens', message);
  });

  it("a group is refused for another problem's prompt, even an easier one's with its answer", () => {
    const easier = answers(tokenizer, ['2*5-9'], {}, heldOut).promptTokens;
    refused({ ...group(), promptTokens: easier }, 'wrong_prompt', /actor-0 use another tokenizer/);
    refused({ ...group(), promptTokens: new Int32Array() }, 'wrong_prompt', /the 0 prompt tokens/);
  });

  it('a group is refused for more tokens than the ticket allows', () => {
    const samplingParams = { temperature: 1, maxTokens: 8, seed: 7 };
    refused(group({ samplingParams }), 'too_many_tokens', /rollout 0 .* has 9 tokens; .* allows 8/);
  });

  it('a group is refused for tokens after the end of a sequence, which would be trained on and not scored', () => {
    const { tokens } = group().rollouts[0]!;
    const longer = Int32Array.of(...tokens, ...tokenizer.encode('+1'));
    const message = /rollout 0 .* goes on after token 8, which ends the sequence/;
    refused(withRollout(group(), { tokens: longer }), 'too_many_tokens', message);
  });

  it('a group is refused for tokens after a text that ends an answer, which would be a second answer', () => {
    const words = (tokens: ArrayLike<number>) =>
      Array.from(tokens, (token) => (token === 5 ? '</answer>' : `${token} `)).join('');
    const worded = {
      ...tokenizer,
      ...{ encode: () => Int32Array.of(3), beginning: [], decode: words },
    };
    const tagged = { ...run, task: countdownSpec({ prompt: styles.fewshot.en }) };
    const own = createJudge(tagged, dataset, worded, characterVocabSize);
    const ending = (...tokens: number[]) => ({
      ...withRollout(group(), {
        tokens: Int32Array.from(tokens),
        behaviorLogprobs: new Float32Array(tokens.length).fill(-0.5),
        versions: [[3, tokens.length]],
      }),
      promptTokens: Int32Array.of(3),
    });
    assert.equal(own.scoreGroup(ending(4, 5)).length, 2);
    assert.throws(() => own.scoreGroup(ending(4, 5, 6)), {
      reason: 'too_many_tokens',
      message: /rollout 0 .* goes on after a text that ends an answer$/,
    });
  });

  it('a group is refused for a token outside the vocabulary', () => {
    const tokens = Int32Array.of(characterVocabSize);
    refused(withRollout(group(), { tokens }), 'token_out_of_range', /rollout 0 .* has token 22;/);
  });

  it('a group is refused for a version older than the ticket, or another than an eval ticket pins', () => {
    const versions: [number, number][] = [
      [2, 4],
      [3, 5],
    ];
    refused(withRollout(group(), { versions }), 'too_old_version', /version 2; .* 3 or newer/);
    refused(group({ pinnedVersion: 4 }), 'wrong_version', /version 3; .* exactly 4/);
  });
});

/** The group with its first rollout changed. */
function withRollout(
  group: RolloutGroup,
  changed: Partial<RolloutGroup['rollouts'][number]>,
): RolloutGroup {
  const [first, ...others] = group.rollouts;
  return { ...group, rollouts: [{ ...first!, ...changed }, ...others] };
}
